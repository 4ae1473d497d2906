package rules

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/offline"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// lockedDown is the address of the host, on its interface eth0.
var lockedDown = netip.MustParsePrefix("203.0.113.1/24")

// lockDownEngine returns an engine with the rules of the lock-down that a rule file leads to.
func lockDownEngine(t *testing.T, text string) (*soft.Engine, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "rules")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := New(Config{Saved: filepath.Join(dir, "rules.saved"),
		LockDown: func() bool { return true },
		Problems: &problem.List{Log: slog.New(slog.DiscardHandler)},
		Settings: Settings{SSH: SSHAsRules}})
	first, err := b.lockDown(file, fmt.Errorf("line 1"))
	if err != nil {
		return nil, err
	}
	p, err := rule.Compile(first.Set, rule.CompileOptions{Strict: true})
	if err != nil {
		return nil, err
	}
	return offline.Engine(offline.SmallTables(firewall.DefaultOptions()), p, first.Set,
		[]firewall.Interface{{Index: 1, Name: "eth0", Addrs: []netip.Prefix{lockedDown}}}, nil)
}

// TestLockDownLetsInWhomTheRulesDid: of a rule file that cannot be used the lock-down takes whom
// the readable lines let in by ssh, and no other. It takes them in the order in which they would
// have been evaluated.
func TestLockDownLetsInWhomTheRulesDid(t *testing.T) {
	const friend, other, enemy = "192.0.2.1", "192.0.2.2", "198.51.100.9"
	for _, c := range []struct {
		name, rules string
		in          []string // sources that reach port 22
	}{
		{"a port", "add allow tcp from 192.0.2.1 to me 22 setup keep-state\n", []string{friend}},
		{"a list of ports", "add allow tcp from 192.0.2.1 to me 20-30,80 setup keep-state\n",
			[]string{friend}},
		{"no state", "add allow tcp from 192.0.2.1 to me 22\n", []string{friend}},
		{"every protocol and port", "add allow ip from 192.0.2.1 to any\n", []string{friend}},
		{"every port but one", "add allow tcp from 192.0.2.1 to me not 80\n", []string{friend}},
		{"another port", "add allow tcp from 192.0.2.1 to me 80\n", nil},
		{"another protocol", "add allow udp from 192.0.2.1 to me 22\n", nil},
		{"answers alone", "add allow tcp from any to any established\n", nil},
		{"numbers decide the order", "add 500 allow tcp from any to me 22 setup keep-state\n" +
			"add 400 deny ip from 198.51.100.0/24 to any\n", []string{friend, other}},
		{"low numbers", "add 2 allow tcp from any to me 22 setup keep-state\n" +
			"add 1 deny ip from 198.51.100.0/24 to any\n", []string{friend, other}},
		{"the owner refuses by reset", "add reset tcp from 198.51.100.9 to me 22\n" +
			"add allow tcp from any to me 22 setup keep-state\n", []string{friend, other}},
		{"the owner refuses by unreach", "add unreach host ip from 198.51.100.9 to any\n" +
			"add allow tcp from any to me 22 setup keep-state\n", []string{friend, other}},
		{"jumps", "add 100 skipto 300 tcp from 192.0.2.0/24 to me 22\n" +
			"add 200 deny tcp from any to any\nadd 300 allow tcp from any to me 22 setup\n",
			[]string{friend, other}},
		{"jumps over", "add 100 skipto 300 ip from 198.51.100.9 to any\n" +
			"add 200 allow tcp from any to me 22 setup\n", []string{friend, other}},
		{"a pipe", "pipe 1 config bw 1Mbit/s\nadd pipe 1 ip from 192.0.2.1 to any\n" +
			"add pipe 2 ip from any to any\n", []string{friend}},
		{"nat", "nat 1 config if eth0\nadd nat 1 ip from 192.0.2.1 to any\n" +
			"add nat 2 ip from any to any\n", []string{friend}},
		{"nat that continues", "disable one_pass\nnat 1 config if eth0\n" +
			"add nat 1 ip from any to any\nadd allow tcp from 192.0.2.1 to me 22\n",
			[]string{friend}},
		{"nat with deny_in", "nat 1 config if eth0 deny_in\nadd allow tcp from 192.0.2.1 to me 22\n" +
			"add nat 1 ip from any to any\n", []string{friend}},
		{"fwd", "add fwd 192.0.2.77 ip from any to any 80\n" +
			"add fwd 127.0.0.1,2222 ip from 192.0.2.1 to any 22 in\n", []string{friend}},
		{"a set that is off", "add set 3 allow tcp from any to me 22 setup\nset disable 3\n" +
			"add allow tcp from 192.0.2.1 to me 22 setup\n", []string{friend}},
		{"deleted and flushed", "add 10 allow tcp from any to me 22\nflush\n" +
			"add 20 allow tcp from any to me 22\nadd 30 allow tcp from 192.0.2.1 to me 22\n" +
			"delete 20\n", []string{friend}},
		{"a table", "table admins create\ntable admins add 192.0.2.1\n" +
			"add allow tcp from table(admins) to me 22 setup keep-state\n", []string{friend}},
		{"a tag", "add 100 count tag 7 ip from 192.0.2.1 to any\n" +
			"add 200 allow tcp from any to me 22 tagged 7\n", []string{friend}},
	} {
		e, err := lockDownEngine(t, "add allow tcp frm any to me 22\n"+c.rules)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		let := map[string]bool{}
		for _, source := range c.in {
			let[source] = true
		}
		hook := firewall.Input{Hook: firewall.Hook{Dir: firewall.In, Recv: 1}}
		for _, source := range []string{friend, other, enemy} {
			from := netip.AddrPortFrom(netip.MustParseAddr(source), 4000)
			for port, want := range map[uint16]bool{22: let[source], 80: false} {
				x := e.Check(&hook, packet.ProtoTCP, from,
					netip.AddrPortFrom(lockedDown.Addr(), port))
				if x.Verdict.Pass != want {
					t.Errorf("%s: a SYN from %s to port %d passes: %v, by rule %d", c.name, source,
						port, x.Verdict.Pass, x.Verdict.Rule)
				}
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// lockedDownManager returns a Manager that has begun with saved rules that cannot be used.
func lockedDownManager(t *testing.T, saved string, h *manualClock) *Manager {
	t.Helper()
	b, _ := newManager(t)
	b.store.path, b.store.clock, b.config.Clock = saved, h.clock(), h.clock()
	b.config.LockDown, b.config.Settings.SSH = func() bool { return true }, SSHAsRules
	first, err := b.Initial()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Begin(first); err != nil {
		t.Fatal(err)
	}
	if p := b.config.Problems.All(); len(p) != 1 || !strings.Contains(p[0].What, "locked down") {
		t.Fatalf("problems %+v", p)
	}
	t.Cleanup(func() { b.config.Problems.Solved(aboutLockDown) })
	return b
}

// TestLockDownIsNotSaved: no command, no note of the time and no end of the agent writes the rules
// of a lock-down over the saved ones. So the next boot is locked down, too.
func TestLockDownIsNotSaved(t *testing.T) {
	const text = "table banned add 192.0.2.9 timeout 1h\n" +
		"add deny ip from table(banned) to any\nadd allow tcp from any to me 22\n"
	for _, what := range []string{"the file of a table is missing", "damaged"} {
		h, saved := newManualClock(), filepath.Join(t.TempDir(), "rules.saved")
		set := ruleset(t, text+"table blocked create file "+saved+".list\n")
		set.SetNow(h.up)
		s := &savedRules{path: saved, file: noFile, clock: h.clock()}
		if err := s.save(Version{Set: set, Strict: true, Source: "x"}); err != nil {
			t.Fatal(err)
		}
		if what == "damaged" {
			if err := os.WriteFile(saved, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		before, err := os.ReadFile(saved)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			b := lockedDownManager(t, saved, h)
			for _, line := range []string{"table banned add 192.0.2.1 timeout 1h",
				"table banned delete 192.0.2.9", "table missing create",
				"add 7 allow ip from any to any", "-f flush"} {
				if _, err := b.do(line, true); !errors.As(err, new(errLockedDown)) {
					t.Errorf("%s: %s: %v", what, line, err)
				}
			}
			h.up += stampEvery
			b.expire()
			if now := savedText(t, b); now != string(before) {
				t.Errorf("%s: after a note of the time saved is\n%s", what, now)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if now := savedText(t, b); now != string(before) {
				t.Errorf("%s: after the end of the agent saved is\n%s", what, now)
			}
		}
	}
}

// TestLockDownEndsWithALoad: what is on trial and a panic lead back to it, and the status shows it
// until other rules stay.
func TestLockDownEndsWithALoad(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "rules.saved")
	if err := os.WriteFile(saved, []byte("garbage\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := lockedDownManager(t, saved, newManualClock())
	lockedDown := func(what string, want bool) {
		t.Helper()
		if n := len(b.config.Problems.All()); (n == 1) != want {
			t.Errorf("%s: %d problems", what, n)
		}
		if now := savedText(t, b); (now == "garbage\n") != want {
			t.Errorf("%s: saved is\n%s", what, now)
		}
	}
	load := api.Load{Name: "new", Text: "add 5 allow tcp from any to any 81\n", Confirm: "1h"}
	if _, err := b.Load(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	if p := b.config.Problems.All(); len(p) != 0 {
		t.Errorf("rules are on trial: %+v", p)
	}
	if _, err := b.Revert(t.Context()); err != nil {
		t.Fatal(err)
	}
	lockedDown("after a trial", true)
	if _, err := b.do("table banned add 192.0.2.1", false); !errors.As(err, new(errLockedDown)) {
		t.Errorf("after a trial: %v", err)
	}
	if err := b.Panic(t.Context(), nil, 0); err != nil {
		t.Fatal(err)
	}
	b.config.Problems.Solved(aboutPanic)
	lockedDown("in a panic", true)
	if err := b.EndPanic(t.Context()); err != nil {
		t.Fatal(err)
	}
	lockedDown("after a panic", true)
	load.Confirm = ""
	if _, err := b.Load(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	must(t, b, "table banned add 192.0.2.1")
	lockedDown("after a load", false)
}
