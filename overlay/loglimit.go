package overlay

import (
	"sync"
	"time"
)

const (
	// logEvery is the least time between two log lines of one kind: what happens for each packet
	// must not fill the log.
	logEvery = 10 * time.Second
	// logKinds is how many kinds are remembered at most.
	logKinds = 1024
)

// logLimiter limits how often each kind of message is logged. The zero value is ready.
type logLimiter struct {
	mu   sync.Mutex
	said map[kind]*said
}

// kind is what is logged, and about which peer.
type kind struct {
	what string
	peer Key
}

type said struct {
	when int64
	more int // suppressed since
}

// may reports whether a message of kind k may be logged now, and how many were suppressed since the
// last one. now is in ns.
func (q *logLimiter) may(k kind, now int64) (more int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.said[k]
	if s != nil && now-s.when < int64(logEvery) {
		s.more++
		return 0, false
	}
	if s == nil {
		if q.said == nil || len(q.said) >= logKinds {
			q.said = map[kind]*said{}
		}
		s = &said{}
		q.said[k] = s
	}
	more = s.more
	s.when, s.more = now, 0
	return more, true
}
