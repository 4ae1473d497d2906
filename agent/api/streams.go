package api

import (
	"fmt"
	"net/http"
	"sync"
)

// Streams of events at once on the read-only socket: of each some megabytes may wait in memory. A
// user needs a few, and leaves the others theirs. Root, who may end the agent as well, is trusted.
const (
	streamsAtOnce = 32
	streamsOfUser = streamsAtOnce / 4
)

// streams counts the streams that there are.
type streams struct {
	mu   sync.Mutex
	all  int         // guarded by mu
	open map[int]int // guarded by mu; those of each user, without zeros
}

// someStreams passes on as many streams at once as there may be, and refuses others.
func someStreams(all http.Handler) http.Handler {
	s := streams{open: map[int]int{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid := ClientUID(r.Context())
		if err := s.add(uid); err != nil {
			WriteError(w, http.StatusServiceUnavailable, err)
			return
		}
		defer s.remove(uid)
		all.ServeHTTP(w, r)
	})
}

func (s *streams) add(uid int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if uid != 0 && s.open[uid] >= streamsOfUser {
		return errStreams{fmt.Sprintf("%d readers of user %d watch", streamsOfUser, uid)}
	}
	if s.all >= streamsAtOnce {
		return errStreams{fmt.Sprintf("%d readers watch", streamsAtOnce)}
	}
	s.all++
	s.open[uid]++
	return nil
}

func (s *streams) remove(uid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.open[uid]--; s.open[uid] == 0 {
		delete(s.open, uid)
	}
}

// errStreams refuses a stream on the read-only socket.
type errStreams struct{ who string }

func (e errStreams) Error() string { return e.who + " the events already" }

// Hint returns who may.
func (errStreams) Hint() string { return "wait until one ends, or run as root" }
