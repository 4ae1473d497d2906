package overlay

import (
	"sync"
	"time"
)

const (
	// logEvery is how long nothing more is logged of a kind: what happens for each packet must not
	// fill the log.
	logEvery = 10 * time.Second
	// logKinds bounds how many kinds are remembered.
	logKinds = 1024
)

// logLimiter keeps the log quiet. The zero value is ready.
type logLimiter struct {
	mu   sync.Mutex
	said map[kind]*said
}

// kind is what is logged, and of whom.
type kind struct {
	what string
	peer Key
}

type said struct {
	when int64
	more int // not logged since
}

// may reports whether something is to be logged now, and how often it was not since the last time. now
// is in ns.
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
