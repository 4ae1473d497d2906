package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/rule"
)

// manualClock is a clock that tests move.
type manualClock struct {
	boot string
	up   time.Duration
	wall time.Time
}

func (h *manualClock) clock() clock.Boot {
	return clock.Boot{ID: func() string { return h.boot },
		Time: func() time.Duration { return h.up },
		Wall: func() time.Time { return h.wall },
		// tests call what is due
		Call: func(time.Duration, func()) *time.Timer { return time.NewTimer(time.Hour) }}
}

func newManualClock() *manualClock {
	return &manualClock{boot: "one", up: time.Hour, wall: time.Unix(1790000000, 0)}
}

// newTimedManager returns a Manager by a clock that the test moves.
func newTimedManager(t *testing.T) (*Manager, *soft.Engine, *manualClock) {
	t.Helper()
	b, e := newManager(t)
	h := newManualClock()
	b.config.Clock, b.store.clock = h.clock(), h.clock()
	must(t, b, "add 10 deny tcp from table(banned) to any", "add 20 allow ip from any to any")
	return b, e, h
}

func members(b *Manager, table string) (all []string) {
	for _, x := range b.Tables(api.TableQuery{}) {
		if x.Name != table {
			continue
		}
		for e := range x.Members {
			left := ""
			if e.LeftSeconds != nil {
				left = fmt.Sprintf(" %gs", *e.LeftSeconds)
			}
			all = append(all, e.Prefix+left)
		}
	}
	return all
}

func expectMembers(t *testing.T, b *Manager, want string) {
	t.Helper()
	if got := strings.Join(members(b, "banned"), ", "); got != want {
		t.Errorf("members %q, not %q", got, want)
	}
}

// TestMemberEnds: a member is gone from the rules and the engine when its time is over, and the
// others stay. A member that is added again ends as the last command says.
func TestMemberEnds(t *testing.T) {
	b, e, h := newTimedManager(t)
	must(t, b, "table banned add 192.0.2.1 timeout 10s 192.0.2.2",
		"table banned add 192.0.2.3 timeout 10s",
		"table banned add 192.0.2.4 timeout 10s", "table banned add 192.0.2.3 timeout 1m",
		"table banned add 192.0.2.4")
	h.up += 10*time.Second - time.Millisecond
	b.expire()
	expectMembers(t, b, "192.0.2.1/32 0.001s, 192.0.2.2/32, 192.0.2.3/32 50.001s, 192.0.2.4/32")
	if passes(e, 80) {
		t.Error("a member that has time left is not in the engine")
	}
	h.up += time.Millisecond
	b.expire()
	expectMembers(t, b, "192.0.2.2/32, 192.0.2.3/32 50s, 192.0.2.4/32")
	if !passes(e, 80) {
		t.Error("the engine has a member whose time is over")
	}
	must(t, b, "table banned delete 192.0.2.3", "table banned add 192.0.2.3")
	h.up += time.Hour
	b.expire()
	expectMembers(t, b, "192.0.2.2/32, 192.0.2.3/32, 192.0.2.4/32")
	if x := b.Expiry(); x != (Expiry{Ended: 1}) {
		t.Errorf("%+v", x)
	}
}

// TestMemberEndsByItself: nothing but the timer is needed.
func TestMemberEndsByItself(t *testing.T) {
	b, e := newManager(t)
	must(t, b, "add 10 deny tcp from table(banned) to any", "add 20 allow ip from any to any",
		"table banned add 192.0.2.1 timeout 50ms")
	nstest.Eventually(t, "the member ends", func() bool { return passes(e, 80) })
}

// TestMembersEndOverRestarts: what is left counts on while no agent runs, and no time of day makes
// it longer than what the machine has been up.
func TestMembersEndOverRestarts(t *testing.T) {
	for _, c := range []struct {
		name string
		move func(*manualClock)
		want string
	}{
		{"at once", func(*manualClock) {}, "192.0.2.1/32 60s, 192.0.2.2/32 3600s, 192.0.2.3/32"},
		{"same boot, and the time of day set back", func(h *manualClock) {
			h.up += 50 * time.Second
			h.wall = time.Unix(0, 0)
		}, "192.0.2.1/32 10s, 192.0.2.2/32 3550s, 192.0.2.3/32"},
		{"same boot, and the time of day set forward", func(h *manualClock) {
			h.up += 50 * time.Second
			h.wall = h.wall.AddDate(50, 0, 0)
		}, "192.0.2.1/32 10s, 192.0.2.2/32 3550s, 192.0.2.3/32"},
		{"same boot, later", func(h *manualClock) { h.up += 70 * time.Second },
			"192.0.2.2/32 3530s, 192.0.2.3/32"},
		{"another boot", func(h *manualClock) {
			h.boot, h.up, h.wall = "two", 20*time.Second, h.wall.Add(10*time.Minute)
		}, "192.0.2.2/32 3000s, 192.0.2.3/32"},
		{"another boot without a clock", func(h *manualClock) {
			h.boot, h.up, h.wall = "two", 20*time.Second, time.Unix(0, 0)
		}, "192.0.2.1/32 40s, 192.0.2.2/32 3580s, 192.0.2.3/32"},
		{"another boot in a far future", func(h *manualClock) {
			h.boot, h.up, h.wall = "two", 20*time.Second, h.wall.AddDate(5000, 0, 0)
		}, "192.0.2.3/32"},
		{"no name of the boot", func(h *manualClock) { h.boot, h.up = "", 20*time.Second },
			"192.0.2.1/32 40s, 192.0.2.2/32 3580s, 192.0.2.3/32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, how := range []string{"in the tail", "whole"} {
				b, _, h := newTimedManager(t)
				must(t, b, "table banned add 192.0.2.9 timeout 10s")
				h.up, h.wall = h.up+100*time.Second, h.wall.Add(100*time.Second)
				must(t, b, "table banned add 192.0.2.1 timeout 1m 192.0.2.2 timeout 1h 192.0.2.3")
				if how == "whole" {
					must(t, b, "add 30 count ip from any to any")
				}
				if noted, err := b.store.stamp(); !noted || err != nil {
					t.Fatal(noted, err)
				}
				c.move(h)
				if got := restarted(t, b, h); got != c.want {
					t.Errorf("%s: members %q, not %q", how, got, c.want)
				}
			}
		})
	}
}

// restarted returns the members that an agent would begin with.
func restarted(t *testing.T, b *Manager, h *manualClock) string {
	t.Helper()
	s := &savedRules{path: b.store.path, clock: h.clock()}
	r, _, err := s.read()
	if err != nil {
		t.Fatal(err)
	}
	next, _ := newManager(t)
	next.config.Clock, next.store.clock = h.clock(), h.clock()
	next.store.path = filepath.Join(t.TempDir(), "saved")
	if _, err := next.begin(r); err != nil {
		t.Fatal(err)
	}
	return strings.Join(members(next, "banned"), ", ")
}

// TestTimeIsNoted: a host that crashes again and again, and does not know the time of day, loses at
// most the time since the last note.
func TestTimeIsNoted(t *testing.T) {
	b, _, h := newTimedManager(t)
	must(t, b, "table banned add 192.0.2.1 timeout 1h")
	for range 11 {
		h.up += stampEvery
		b.expire()
	}
	h.boot, h.up, h.wall = "two", time.Second, time.Unix(0, 0)
	if got := restarted(t, b, h); got != "192.0.2.1/32 299s" {
		t.Error(got)
	}
}

// TestTrialThatIsOverBringsNoMemberBack: members whose time was over meanwhile do not return with
// the rules before a trial.
func TestTrialThatIsOverBringsNoMemberBack(t *testing.T) {
	b, e, h := newTimedManager(t)
	must(t, b, "table banned add 192.0.2.1 timeout 10s 192.0.2.2 timeout 1h")
	next := Version{Set: ruleset(t, "add allow ip from any to any"), Strict: true, Source: "next"}
	if err := b.load(next, time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	h.up += time.Minute
	if _, err := b.goBack(); err != nil {
		t.Fatal(err)
	}
	expectMembers(t, b, "192.0.2.2/32 3540s")
	if !passes(e, 80) {
		t.Error("the engine has a member whose time is over")
	}
}

// TestMembersOfAFileEnd: timeouts in a rule file count from the moment it is loaded, those of a
// command file from the command.
func TestMembersOfAFileEnd(t *testing.T) {
	b, _, h := newTimedManager(t)
	set := ruleset(t, "table banned add 192.0.2.1 timeout 10s\nadd allow ip from any to any")
	set.SetNow(h.up)
	if err := b.load(Version{Set: set, Source: "file"}, 0, nil); err != nil {
		t.Fatal(err)
	}
	h.up += 5 * time.Second
	if _, err := b.doAll("file", "table banned add 192.0.2.2 timeout 10s"); err != nil {
		t.Fatal(err)
	}
	expectMembers(t, b, "192.0.2.1/32 5s, 192.0.2.2/32 10s")
	h.up += 5 * time.Second
	b.expire()
	expectMembers(t, b, "192.0.2.2/32 5s")
}

// TestMembersWithATimeoutAreBounded: one more is refused and counted, whether it comes by a command
// or in a file, and changes nothing.
func TestMembersWithATimeoutAreBounded(t *testing.T) {
	b, _, _ := newTimedManager(t)
	must(t, b, "table full create")
	set := b.rules.Set
	a := netip.MustParseAddr("10.0.0.0")
	for range maxTimed {
		set.Tables["full"][netip.PrefixFrom(a, 32)] = 0
		set.SetDeadline("full", netip.PrefixFrom(a, 32), 1000*time.Hour)
		a = a.Next()
	}
	_, err := b.do("table banned add 192.0.2.1 timeout 1h", false)
	if !errors.As(err, new(errManyTimed)) {
		t.Errorf("%v", err)
	}
	if _, err := b.doAll("f", "table banned add 192.0.2.1 timeout 1h"); !errors.As(err,
		new(errManyTimed)) {
		t.Errorf("%v", err)
	}
	must(t, b, "table banned add 192.0.2.2")
	expectMembers(t, b, "192.0.2.2/32")
	if x := b.Expiry(); x.Refused != 2 || x.Timed != maxTimed {
		t.Errorf("%+v", x)
	}
	clear(set.Tables["full"]) // for the end of the test
	delete(b.rules.Set.Deadlines, "full")
}

// keeping is an engine that refuses to remove members, and to set tables.
type keeping struct {
	*soft.Engine
	deletes, sets bool
	but           string // the table that it changes all the same
}

func (e *keeping) DeleteTable(name string, p netip.Prefix) error {
	if e.deletes && name != e.but {
		return errors.New("no memory")
	}
	return e.Engine.DeleteTable(name, p)
}

func (e *keeping) SetTable(name string, all []rule.TableEntry) error {
	if e.sets && name != e.but {
		return errors.New("no memory")
	}
	return e.Engine.SetTable(name, all)
}

// TestMemberThatCannotBeRemoved: it is tried again, shown as a problem until then, and removed by
// setting the table where one change does not do it.
func TestMemberThatCannotBeRemoved(t *testing.T) {
	b, e, h := newTimedManager(t)
	must(t, b, "table banned add 192.0.2.1 timeout 1s 192.0.2.2",
		"table guests add 192.0.2.3 timeout 2s")
	engine := &keeping{e, true, true, "guests"}
	b.config.Engine = engine
	h.up += 2 * time.Second
	b.expire()
	if left := members(b, "guests"); len(left) != 0 {
		t.Errorf("the end of members of another table waits: %v", left)
	}
	expectMembers(t, b, "192.0.2.1/32 0s, 192.0.2.2/32")
	if p := b.config.Problems.All(); len(p) != 1 ||
		!strings.Contains(p[0].What, "192.0.2.1/32 stays") {
		t.Errorf("problems %+v", p)
	}
	engine.sets = false
	b.expire()
	expectMembers(t, b, "192.0.2.2/32")
	if !passes(e, 80) {
		t.Error("the engine has a member whose time is over")
	}
	if x := b.Expiry(); x.Failed != 1 || x.Ended != 2 {
		t.Errorf("%+v", x)
	}
}

// TestUndoneMembersEndAsBefore: a command that fails changes no deadline.
func TestUndoneMembersEndAsBefore(t *testing.T) {
	b, e, _ := newTimedManager(t)
	must(t, b, "table banned add 192.0.2.1 timeout 10s 192.0.2.2")
	b.config.Engine = &refusingEngine{e, netip.MustParsePrefix("10.0.0.9/32")}
	if _, err := b.do("table banned add 192.0.2.1 192.0.2.2 timeout 1h 192.0.2.3 timeout 1s "+
		"10.0.0.9", false); err == nil {
		t.Fatal("no error")
	}
	expectMembers(t, b, "192.0.2.1/32 10s, 192.0.2.2/32")
}
