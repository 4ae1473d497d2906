package soft

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/firetest"
	"github.com/weirnet/weir/rule"
)

// TestSourcesOfRulesThatAreGone: a half-open state of a rule that is gone counts no more for its source, although the sweep has not come by yet.
func TestSourcesOfRulesThatAreGone(t *testing.T) {
	at := func(now time.Duration, packet string) firetest.Step {
		b, err := hex.DecodeString(packet)
		if err != nil {
			t.Fatal(err)
		}
		return firetest.Step{Kind: firetest.StepPacket, Packet: b, Input: firewall.Input{Now: now, Hook: firewall.Hook{Recv: 1}}}
	}
	c := &firetest.Case{
		Rules: [][]string{
			{"add 100 allow ip from any to 10.0.0.0/24 keep-state :web", "add 1000 allow ip from any to any keep-state"},
			{"add 1000 allow ip from any to any keep-state"},
		},
		Default: rule.OpDeny, Strict: true, PerSource: true, // two half-open states
		Steps: []firetest.Step{
			at(100*time.Second, "4500001800000000402f00000a0001090a00008100000000"), // GRE to 10.0.0.129: rule 100
			at(101*time.Second, "4500001800000000402f00000a0001097f00000100000000"), // to 127.0.0.1: rule 1000
			{Kind: firetest.StepLoad, Set: 1},
			at(102*time.Second, "4500001800000000402f00000a0001097f00000200000000"), // the second one, no third
			at(103*time.Second, "4500001800000000402f00000a0001097f00000300000000"), // this one is
		},
	}
	d, err := c.Run(treaty(), func(o firewall.Options) (firetest.Subject, error) {
		e, err := New(Options{Options: o, Workers: 1})
		return subject{e, func(e *Engine, in *firewall.Input, pkt []byte) (firewall.Verdict, error) {
			return e.Worker(0).Judge(in, pkt), nil
		}}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if d != nil {
		t.Fatal(d)
	}
}
