package rules

import (
	"container/heap"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/rule"
)

const (
	// maxTimed is how many members with a timeout the tables may have together: who bans what
	// attackers show must not fill the memory.
	maxTimed = 1 << 18
	// expireBatch is how many members end while the lock is held.
	expireBatch = 1024
	// expireAgain is when a member that could not be removed is tried again.
	expireAgain = time.Second
)

// aboutExpiry is the subject of the problem that a member could not be removed.
const aboutExpiry = "the end of members of tables"

// expiry knows which member ends next. The deadlines themselves are in the Ruleset: one that is not
// there any more, or is another, counts no longer.
type expiry struct {
	next    deadlines
	timer   *time.Timer
	noted   time.Duration // when the time was noted in the saved rules
	ended   atomic.Uint64
	refused atomic.Uint64 // members that were one too many
	failed  atomic.Uint64 // members that could not be removed, each try
}

// deadline is when a member ends.
type deadline struct {
	at     time.Duration
	table  string
	prefix netip.Prefix
}

// deadlines is a heap.
type deadlines []deadline

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at < d[j].at }
func (d deadlines) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *deadlines) Push(x any)        { *d = append(*d, x.(deadline)) }

func (d *deadlines) Pop() any {
	all := *d
	last := all[len(all)-1]
	all[len(all)-1] = deadline{}
	*d = all[:len(all)-1]
	return last
}

// errManyTimed refuses members with a timeout when there are as many as there may be.
type errManyTimed struct{}

func (errManyTimed) Error() string {
	return fmt.Sprintf("too many members with a timeout: all tables together can have %d", maxTimed)
}

// Hint returns what to do about it.
func (errManyTimed) Hint() string {
	return "add a prefix that covers many of them, or flush the table"
}

// checkTimed refuses too many members with a timeout, of which more are to come.
func (m *Manager) checkTimed(set *rule.Ruleset, more int) error {
	if more > 0 && set.TimedMembers()+more > maxTimed || set.TimedMembers() > maxTimed {
		m.expiry.refused.Add(uint64(max(more, 1)))
		return errManyTimed{}
	}
	return nil
}

// followExpiryLocked reads the deadlines of the rules in force again.
func (m *Manager) followExpiryLocked() {
	set := m.rules.Set
	m.expiry.next = make(deadlines, 0, set.TimedMembers())
	for table, ends := range set.Deadlines {
		for p, at := range ends {
			m.expiry.next = append(m.expiry.next, deadline{at, table, p})
		}
	}
	heap.Init(&m.expiry.next)
	m.expiry.noted = m.config.Clock.Now()
	m.armLocked(0)
}

// followMembersLocked adds the deadlines of members that a command has made.
func (m *Manager) followMembersLocked(c *rule.Command) {
	if c.Kind != rule.CommandTableAdd || c.Timeouts == nil {
		return
	}
	set := m.rules.Set
	// members that are made over and over leave deadlines behind that no longer count
	if len(m.expiry.next) > 2*(set.TimedMembers()+expireBatch) {
		m.followExpiryLocked()
		return
	}
	for _, e := range c.Entries {
		if at, timed := set.Deadlines[c.Table][e.Prefix]; timed {
			heap.Push(&m.expiry.next, deadline{at, c.Table, e.Prefix})
		}
	}
	m.armLocked(0)
}

// armLocked has expire called when the next member ends, or the time is to be noted; not before a
// pause.
func (m *Manager) armLocked(pause time.Duration) {
	x := &m.expiry
	if x.timer != nil {
		x.timer.Stop()
	}
	if len(x.next) == 0 || m.closed {
		x.timer = nil
		return
	}
	// The timer stands still while the machine sleeps, and the clock does not.
	wait := min(x.next[0].at-m.config.Clock.Now(), time.Minute)
	x.timer = m.config.Clock.After(max(wait, pause, 0), m.expire)
}

// expire removes the members whose time is over from the engines, each by one change, and from the
// rules. The saved rules still have them: who reads them knows the time.
func (m *Manager) expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	x, now, pause := &m.expiry, m.config.Clock.Now(), time.Duration(0)
	var again []deadline // of tables that cannot be changed now: others end meanwhile
	stuck := map[string]bool{}
	for range expireBatch {
		if len(x.next) == 0 || x.next[0].at > now {
			break
		}
		d := heap.Pop(&x.next).(deadline)
		if at, timed := m.rules.Set.Deadlines[d.table][d.prefix]; !timed || at != d.at {
			continue
		}
		if stuck[d.table] {
			again = append(again, d)
			continue
		}
		if err := m.endMemberLocked(d); err != nil {
			x.failed.Add(1)
			m.config.Problems.Set(aboutExpiry, fmt.Sprintf("%s stays in table %s, although its "+
				"timeout has expired: %v", d.prefix, d.table, err), "Weir tries again")
			again, stuck[d.table], pause = append(again, d), true, expireAgain
			continue
		}
		x.ended.Add(1)
		if len(stuck) == 0 {
			m.config.Problems.Solved(aboutExpiry)
		}
	}
	for _, d := range again {
		heap.Push(&x.next, d)
	}
	m.noteTimeLocked(now)
	m.armLocked(pause)
}

// endMemberLocked removes a member. Where that fails, because an earlier try reached one engine,
// the table is set again.
func (m *Manager) endMemberLocked(d deadline) error {
	table := m.rules.Set.Tables[d.table]
	value := table[d.prefix]
	delete(table, d.prefix)
	err := m.config.Engine.DeleteTable(d.table, d.prefix)
	if err == nil {
		m.rules.Set.SetDeadline(d.table, d.prefix, 0)
		return nil
	}
	if again := m.config.Engine.SetTable(d.table, m.rules.Set.Entries(d.table)); again != nil {
		table[d.prefix] = value
		return errors.Join(err, again)
	}
	m.rules.Set.SetDeadline(d.table, d.prefix, 0)
	return nil
}

// noteTimeLocked notes the time in the saved rules every some minutes, while a member ends. It does
// not while the host is locked down: the saved rules are others.
func (m *Manager) noteTimeLocked(now time.Duration) {
	lasting := m.lastingLocked()
	if now-m.expiry.noted < stampEvery || m.rules.Set.TimedMembers() == 0 ||
		lasting.lockDown != nil {
		return
	}
	m.expiry.noted = now
	noted, err := m.store.stamp()
	if !noted && err == nil {
		err = m.store.save(lasting)
	}
	if err != nil {
		m.config.Log.Warn("cannot note the time of members of tables", "err", err)
	}
}

// Expiry has the counters of members with a timeout.
type Expiry struct {
	Timed   int    // members that will end
	Ended   uint64 // that have ended
	Refused uint64 // that were one too many
	Failed  uint64 // tries to remove one that failed
}

// Expiry returns the counters.
func (m *Manager) Expiry() (x Expiry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rules.Set != nil {
		x.Timed = m.rules.Set.TimedMembers()
	}
	x.Ended, x.Refused = m.expiry.ended.Load(), m.expiry.refused.Load()
	x.Failed = m.expiry.failed.Load()
	return x
}
