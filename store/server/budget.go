package server

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/identity"
)

// What a transaction costs beside its keys and values, about what the store keeps of it.
const (
	txnCost = 512
	putCost = 128
)

func costOf(t store.Txn) (cost int) {
	cost = txnCost
	for _, p := range t.Put {
		cost += putCost + len(p.Key) + len(p.Value)
	}
	return cost
}

// readCost is what a read costs beside its answer: etcd is asked each time.
const readCost = 4 << 10

// limiters have what certificates may spend. All connections of one have the same budget.
type limiters map[identity.Serial]*rate.Limiter

// tidy forgets a certificate that has spent nothing lately.
func (l limiters) tidy(of identity.Serial) {
	if b := l[of]; b != nil && b.Tokens() >= float64(b.Burst()) {
		delete(l, of)
	}
}

// limiter returns what the connection's certificate may spend of one kind.
func (c *conn) limiter(of limiters, by Budget) *rate.Limiter {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	b := of[c.peer.Serial]
	if b == nil {
		b = rate.NewLimiter(rate.Limit(by.Rate), by.Burst)
		of[c.peer.Serial] = b
	}
	return b
}

// spend waits until the connection's certificate may spend so much. what is the verb of the error,
// store.ErrUnavailable, when that would take too long.
func (c *conn) spend(ctx context.Context, of limiters, by Budget, cost int, what string) error {
	if by.Rate == 0 {
		return nil
	}
	b := c.limiter(of, by)
	if b.AllowN(time.Now(), cost) {
		return nil
	}
	c.server.Counters.Throttled.Add(1)
	ctx, cancel := context.WithTimeout(ctx, c.server.config.Silence/2)
	defer cancel()
	if err := b.WaitN(ctx, cost); err != nil {
		return fmt.Errorf("%w: %v %s more than %d bytes a second", store.ErrUnavailable, c.peer.ID,
			what, by.Rate)
	}
	return nil
}

// charge notes what the answer to a read costs, which shows afterwards: the next reads wait.
func (c *conn) charge(by Budget, answer store.Snapshot) {
	if by.Rate == 0 {
		return
	}
	c.limiter(c.server.reads, by).ReserveN(time.Now(), min(sizeOf(answer), by.Burst))
}

// sizeOf returns what an answer takes in memory.
func sizeOf(answer store.Snapshot) (size int) {
	for _, e := range answer.Entries {
		size += e.Cost()
	}
	return size
}

// PercentFull returns how full the store is, in percent: its database, or the copy that every host
// keeps of it, with the transactions under way. 0 if neither is known. While the store is too large
// to be followed it is 99: a removal, which may make it fit again, needs less than 100.
func (s *Server) PercentFull() int {
	if s.large.Load() > 0 {
		return max(s.databaseFull(), 99)
	}
	copied := s.state.size() + int(s.writing.Load())
	return max(s.databaseFull(), min(copied*100/s.config.MaxCopy, 100))
}

// databaseFull returns how full the database is, in percent; 0 if that is not known.
func (s *Server) databaseFull() int {
	if s.config.PercentFull == nil {
		return 0
	}
	return s.config.PercentFull()
}

// hasSpace returns an error for a transaction that takes space which is reserved for others. At its
// quota etcd takes nothing, not even the removal of the host that has filled it, and no one follows
// a copy that is too large. A value that is not longer than the one before is taken, so that what
// is gone can be said. It is not taken if the database is full, because it leaves the one before in
// the history.
func (c *conn) hasSpace(t store.Txn, by Admission) error {
	if by.FillLimit == nil {
		return nil
	}
	all, database := c.server.PercentFull(), c.server.databaseFull()
	for _, p := range t.Put {
		full := database
		if store.Covers(c.server.config.Name, p.Key) { // the copy has it
			full = all
		}
		if full < by.FillLimit(p.Key) {
			continue
		}
		if had, _ := c.server.state.get(p.Key); database < 100 &&
			len(p.Value) <= len(had.Value) {
			continue
		}
		c.server.Counters.NoSpace.Add(1)
		return fmt.Errorf("%w: it is %d %% full, and the rest is reserved: write %s",
			store.ErrUnavailable, full, p.Key)
	}
	return nil
}
