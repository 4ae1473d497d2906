package host

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// stackEngine records what it is given.
type stackEngine struct {
	Engine
	routing  bool
	policies []kernel.Policy
	err      error
}

func (e *stackEngine) SetStack(routing bool, policies []kernel.Policy) error {
	e.routing, e.policies = routing, policies
	return e.err
}

// TestStack: policies and routing rules of the host reach the engine. The rule that the agent makes
// itself does not count.
func TestStack(t *testing.T) {
	t.Parallel()
	n := nstest.New(t).Node("host")
	e := &stackEngine{}
	s := Stack{Engine: e, Problems: &problem.List{Log: slog.New(slog.DiscardHandler)},
		Log: slog.New(slog.DiscardHandler)}
	expect := func(args string, routing bool, policies int, why string) {
		t.Helper()
		if args != "" {
			n.IP(args)
		}
		if err := n.Do(func() error { s.Refresh(); return nil }); err != nil {
			t.Fatal(err)
		}
		if e.routing != routing || len(e.policies) != policies || !strings.Contains(s.Why(), why) ||
			(why == "") != (s.Why() == "") || (e.err != nil) != (len(s.Problems.All()) > 0) {
			t.Errorf("%s: %v, %v, %q, %v", args, e.routing, e.policies, s.Why(), s.Problems.All())
		}
	}
	expect("", false, 0, "")
	err := n.Do(func() error {
		conn, err := nl.Open(nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		return errors.Join(takeMarked(conn, false), takeMarked(conn, true))
	})
	if err != nil {
		t.Fatal(err)
	}
	expect("", false, 0, "")
	expect("rule add pref 9 dport 80 lookup 7", true, 0, "routing rule 9")
	expect("xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir out", true, 1,
		"from 10.0.0.0/8 to 10.1.0.0/16")
	expect("rule delete pref 9", false, 1, "from 10.0.0.0/8 to 10.1.0.0/16")
	e.err = errors.New("refused")
	expect("", false, 1, "from 10.0.0.0/8")
	e.err = nil
	expect("xfrm policy flush", false, 0, "")
}

// TestUnreadablePolicies: where the policies cannot be read, every packet may be one's, and those
// that were read last protect what they did.
func TestUnreadablePolicies(t *testing.T) {
	t.Parallel()
	n := nstest.New(t).Node("host")
	e := &stackEngine{}
	s := Stack{Engine: e, Problems: &problem.List{Log: slog.New(slog.DiscardHandler)},
		Log: slog.New(slog.DiscardHandler)}
	unreadable := func() error { // on a thread of its own, which ends
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&h, &none[0]); err != nil {
			return err
		}
		s.Refresh()
		return nil
	}
	look := func(look func() error) {
		t.Helper()
		if err := n.Do(look); err != nil {
			t.Fatal(err)
		}
	}
	readable := func() error { s.Refresh(); return nil }
	look(unreadable)
	if !e.routing || !slices.Equal(e.policies, allPackets) || len(s.Problems.All()) != 1 {
		t.Errorf("%v, %v, %v", e.routing, e.policies, s.Problems.All())
	}
	look(readable)
	if e.routing || len(e.policies) > 0 || len(s.Problems.All()) > 0 {
		t.Errorf("readable again: %v, %v, %v", e.routing, e.policies, s.Problems.All())
	}
	n.IP("xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir out action block")
	look(readable)
	known := e.policies
	look(unreadable)
	if len(known) != 1 || !known[0].Protects ||
		!slices.Equal(e.policies, slices.Concat(known, allPackets)) {
		t.Errorf("of %v, that cannot be read any more, the engine has %v", known, e.policies)
	}
}

// TestWhyOfRefused: why packets go through the stack is known also if the engine reports an error,
// as it does of more policies than it has space for.
func TestWhyOfRefused(t *testing.T) {
	e := &stackEngine{err: errors.New("too many")}
	s := Stack{Engine: e, Problems: &problem.List{Log: slog.New(slog.DiscardHandler)},
		Log: slog.New(slog.DiscardHandler)}
	if err := s.setLocked("a policy", false, allPackets); err == nil || s.Why() != "a policy" {
		t.Errorf("%v, %q", err, s.Why())
	}
}
