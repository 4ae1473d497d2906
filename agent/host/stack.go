package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
)

// Stack tells the engine for which IPsec policies and routing rules packets of pods have to go up
// the stack. If either cannot be read, all of them go, and the policies that were read last still
// protect their packets. The engine also asks the policies itself, on hosts without pods, too.
type Stack struct {
	Engine   Engine
	Problems *problem.List
	Log      *slog.Logger

	mu   sync.Mutex      // its place in the lock order: agent/doc.go
	why  string          // guarded by mu
	last []kernel.Policy // guarded by mu; the policies that were read last
}

// Refresh reads the policies and the routing rules, and gives the engine what it has to know.
func (s *Stack) Refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	const about = "IPsec policies and routing rules"
	if err := s.lookLocked(); err != nil {
		s.Problems.Set(about, err.Error(),
			"weir doctor; until then packets of pods go through the host's stack")
		return
	}
	s.Problems.Solved(about)
}

func (s *Stack) lookLocked() error {
	policies, err := nl.ForwardPolicies()
	if err != nil {
		return errors.Join(err, s.setLocked("IPsec policies that cannot be read", true,
			slices.Concat(s.last, allPackets)))
	}
	s.last = policies
	rule, err := packetRule()
	if err != nil {
		return errors.Join(err, s.setLocked("routing rules that cannot be read", true, policies))
	}
	why := rule
	if len(policies) > 0 {
		why = fmt.Sprintf("an IPsec policy for packets from %s to %s", policies[0].Src,
			policies[0].Dst)
	}
	return s.setLocked(why, rule != "", policies)
}

// allPackets is a policy for each family that may match every packet. It protects none: that the
// policies cannot be read must not cut off the pods of a host without any.
var allPackets = []kernel.Policy{{Src: netip.MustParsePrefix("0.0.0.0/0"),
	Dst: netip.MustParsePrefix("0.0.0.0/0")},
	{Src: netip.MustParsePrefix("::/0"), Dst: netip.MustParsePrefix("::/0")}}

// packetRule names a routing rule that the fast path does not respect, "" if there is none. That of
// rules with fwd is about packets that the engine itself marks for the stack.
func packetRule() (string, error) {
	rules, err := nl.PacketRules()
	for _, r := range rules {
		if r.Mark != kernel.FwdMark || r.Table != hopTable {
			return fmt.Sprintf("the routing rule %d, which is about more than addresses",
				r.Priority), err
		}
	}
	return "", err
}

func (s *Stack) setLocked(why string, routing bool, policies []kernel.Policy) error {
	if err := s.Engine.SetStack(routing, policies); err != nil {
		s.why = cmp.Or(s.why, why) // it may have taken effect: of too many policies it has
		return err
	}
	switch {
	case why != "" && s.why == "":
		s.Log.Info("if there are pods, their packets from and to other hosts go through the stack",
			"why", why)
	case why == "" && s.why != "":
		s.Log.Info("packets between pods and other hosts take the fast path again")
	}
	s.why = why
	return nil
}

// Why says why packets between pods and other hosts go through the stack, "" if they need not.
func (s *Stack) Why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// Watch follows the policies and the routing rules until ctx ends.
func (s *Stack) Watch(ctx context.Context, retry *problem.Retrier) {
	go retry.Run(ctx, "the IPsec policies are not followed", "weir doctor",
		func(ctx context.Context) error { return nl.WatchPolicies(ctx, s.Refresh) })
	retry.Run(ctx, "the routing rules are not followed", "weir doctor",
		func(ctx context.Context) error { return nl.WatchRules(ctx, s.Refresh) })
}
