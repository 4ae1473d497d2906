package rules

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/packet"
)

var ssh = &api.Session{From: netip.MustParseAddrPort("192.0.2.1:4000"),
	To: netip.MustParseAddrPort("192.0.2.2:22")}

// flows returns what the engine makes of packets of a TCP connection from 192.0.2.1.
func flows(e *soft.Engine, from, to uint16) bool {
	return flowsBetween(e, "192.0.2.1", from, "192.0.2.2", to)
}

func flowsBetween(e *soft.Engine, a string, from uint16, b string, to uint16) bool {
	return e.Check(&firewall.Input{}, packet.ProtoTCP,
		netip.AddrPortFrom(netip.MustParseAddr(a), from),
		netip.AddrPortFrom(netip.MustParseAddr(b), to)).Verdict.Pass
}

// panicManager returns a Manager whose rules let ports 22 and 80 in.
func panicManager(t *testing.T) (*Manager, *soft.Engine, *manualClock) {
	t.Helper()
	b, e := newManager(t)
	h := newManualClock()
	b.config.Clock, b.store.clock = h.clock(), h.clock()
	set := ruleset(t, "add allow tcp from any to any 22,80\ntable banned add 192.0.2.9 timeout 1h")
	set.SetNow(b.config.Clock.Now())
	if err := b.load(Version{Set: set, Strict: true, Source: "normal"}, 0, nil); err != nil {
		t.Fatal(err)
	}
	return b, e, h
}

// TestPanic: only the session passes, nothing can be changed, and the end brings the rules back.
func TestPanic(t *testing.T) {
	b, e, _ := panicManager(t)
	if err := b.EndPanic(t.Context()); err == nil {
		t.Error("a panic ends that never began")
	}
	saved := savedText(t, b)
	if err := b.Panic(t.Context(), ssh, 0); err != nil {
		t.Fatal(err)
	}
	if !flows(e, 4000, 22) || flows(e, 4001, 22) || flows(e, 4000, 80) {
		t.Error("not the session alone passes")
	}
	for _, line := range []string{"add allow ip from any to any", "table banned add 192.0.2.8",
		"flush"} {
		if _, err := b.do(line, false); !errors.As(err, new(errPanic)) {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, err := b.Load(t.Context(), api.Load{Name: "x",
		Text: "add allow ip from any to any"}); !errors.As(err, new(errPanic)) {
		t.Error(err)
	}
	if savedText(t, b) != saved {
		t.Error("the saved rules changed")
	}
	other := *ssh
	other.From = netip.MustParseAddrPort("192.0.2.1:5000")
	if err := b.Panic(t.Context(), &other, 51820); err != nil {
		t.Fatal(err)
	}
	if !flows(e, 5000, 22) || flows(e, 4000, 22) {
		t.Error("not the session that asked last is kept")
	}
	if p := b.config.Problems.All(); len(p) != 1 || !strings.Contains(p[0].Advice, "--end") {
		t.Errorf("problems %+v", p)
	}
	if err := b.EndPanic(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !flows(e, 4001, 22) || !flows(e, 4001, 80) || len(members(b, "banned")) != 1 {
		t.Error("the previous rules are not back")
	}
	if _, err := os.Stat(PanicFile(b.store.path)); err == nil {
		t.Error("the next start would panic")
	}
	must(t, b, "add allow ip from any to any")
}

// TestPanicSurvives: the next start is in panic too, with any rules; after another boot, when the
// session is gone, a new one may begin from where it was. A record that is damaged spares nothing.
func TestPanicSurvives(t *testing.T) {
	for _, c := range []struct {
		name, damage   string
		boot           string
		session, again bool
	}{
		{name: "a restart", boot: "one", session: true},
		{name: "a boot", boot: "two", session: true, again: true},
		{name: "damage", boot: "one", damage: "{"},
		{name: "no session", boot: "one",
			damage: `{"boot":"one","session":{"from":"","to":""}}`},
		{name: "a session of two families", boot: "one",
			damage: `{"boot":"one","session":{"from":"192.0.2.1:4000","to":"[2001:db8::1]:22"}}`},
	} {
		b, _, h := panicManager(t)
		if err := b.Panic(t.Context(), ssh, 0); err != nil {
			t.Fatal(err)
		}
		if c.damage != "" {
			if err := os.WriteFile(PanicFile(b.store.path), []byte(c.damage), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b.config.Problems.Solved(aboutPanic)
		if c.boot != h.boot {
			h.boot, h.up = c.boot, time.Minute
		}
		next, e := newManager(t)
		next.store.path, next.store.clock, next.config.Clock = b.store.path, h.clock(), h.clock()
		first, err := next.Initial()
		if err != nil {
			t.Fatal(err)
		}
		next.config.Confirm = time.Hour
		if err := next.Begin(first); err != nil {
			t.Fatal(err)
		}
		if flows(e, 4000, 22) != c.session || flows(e, 4001, 22) != c.again || flows(e, 4000, 80) {
			t.Errorf("%s: %t %t %t", c.name, flows(e, 4000, 22), flows(e, 4001, 22),
				flows(e, 4000, 80))
		}
		for _, port := range []uint16{4000, 4001} {
			if flowsBetween(e, "192.0.2.7", port, "192.0.2.2", 22) ||
				flowsBetween(e, "192.0.2.1", port, "192.0.2.3", 22) {
				t.Errorf("%s: another host, or another address, from port %d", c.name, port)
			}
		}
		if err := next.EndPanic(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !flows(e, 1, 80) || len(members(next, "banned")) != 1 {
			t.Errorf("%s: the previous rules are not back", c.name)
		}
	}
}

// TestTrialDuringAPanic: a start that is to try rules is refused during a panic, which continues.
func TestTrialDuringAPanic(t *testing.T) {
	b, _, _ := panicManager(t)
	if err := b.Panic(t.Context(), nil, 0); err != nil {
		t.Fatal(err)
	}
	b.config.Problems.Solved(aboutPanic)
	b.config.Default = filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(b.config.Default, []byte("add allow ip from any to any 81\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	before := savedText(t, b)
	next := nextManager(t, b)
	next.config.Confirm = time.Hour
	first, err := next.Initial()
	if err != nil || first.before == nil {
		t.Fatal(first, err)
	}
	err = next.Begin(first)
	if err == nil || !strings.Contains(err.Error(), "during a panic") {
		t.Errorf("rules are tried during a panic: %v", err)
	}
	if now := savedText(t, next); now != before || !next.inPanicBefore() {
		t.Errorf("the saved rules were\n%s and are\n%s", before, now)
	}
}

// TestPanicDuringATrial: what comes back are the rules before the trial.
func TestPanicDuringATrial(t *testing.T) {
	b, e, _ := panicManager(t)
	if err := b.load(Version{Set: ruleset(t, "add allow tcp from any to any 81"), Strict: true},
		time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Panic(t.Context(), nil, 0); err != nil {
		t.Fatal(err)
	}
	if flows(e, 4000, 22) || flows(e, 1, 81) {
		t.Error("something passes")
	}
	if err := b.EndPanic(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, on := b.TrialLeft(); on || flows(e, 1, 81) || !flows(e, 1, 80) {
		t.Error("the rules before the trial are not back")
	}
}

// TestPanicOnAFullDisk: it is in force, and the answer says that a restart would lift it.
func TestPanicOnAFullDisk(t *testing.T) {
	b, e, _ := panicManager(t)
	if err := os.Mkdir(PanicFile(b.store.path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.Panic(t.Context(), ssh, 0); err == nil ||
		!strings.Contains(err.Error(), "a restart") {
		t.Error(err)
	}
	if flows(e, 1, 80) {
		t.Error("the panic is not in force")
	}
	if err := b.EndPanic(t.Context()); err != nil {
		t.Fatal(err)
	}
}
