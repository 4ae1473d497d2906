package soft

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/rule/op"
)

// at is the step of a packet.
func at(t *testing.T, now time.Duration, packet string) enginetest.Step {
	t.Helper()
	b, err := hex.DecodeString(packet)
	if err != nil {
		t.Fatal(err)
	}
	return enginetest.Step{Kind: enginetest.StepPacket, Packet: b,
		Input: firewall.Input{Now: now, Hook: firewall.Hook{Recv: 1}}}
}

// agree wants one worker to decide as the model does.
func agree(t *testing.T, c *enginetest.Case) {
	t.Helper()
	d, err := c.Run(testOptions(), subjects(1, byFirst))
	if err != nil {
		t.Fatal(err)
	}
	if d != nil {
		t.Fatal(d)
	}
}

// TestTheSourceOfZeros: the IPv6 source whose first 64 bits are zero is one like others, and no
// number of IPv4 addresses.
func TestTheSourceOfZeros(t *testing.T) {
	udp := func(last string) string {
		return "6000000000081140" + "000000000000000000000000000" + last +
			"20010db8000000000000000000000001" + "0400003500080000"
	}
	agree(t, &enginetest.Case{
		Rules:   [][]string{{"add 1000 allow ip from any to any keep-state"}},
		Default: op.ActionDeny, Strict: true, PerSource: true, // two half-open states
		Steps: []enginetest.Step{
			// ::2:0 and ::3:0
			at(t, 100*time.Second, udp("20000")), at(t, 101*time.Second, udp("30000")),
			at(t, 102*time.Second, udp("40000")), // no third
		},
	})
}

// TestSourcesOfRulesThatAreGone: a half-open state of a rule that is gone counts no more for its
// source, although the sweep has not come by yet.
func TestSourcesOfRulesThatAreGone(t *testing.T) {
	agree(t, &enginetest.Case{
		Rules: [][]string{
			{"add 100 allow ip from any to 10.0.0.0/24 keep-state :web",
				"add 1000 allow ip from any to any keep-state"},
			{"add 1000 allow ip from any to any keep-state"},
		},
		Default: op.ActionDeny, Strict: true, PerSource: true, // two half-open states
		Steps: []enginetest.Step{
			// GRE to 10.0.0.129: rule 100
			at(t, 100*time.Second, "4500001800000000402f00000a0001090a00008100000000"),
			// to 127.0.0.1: rule 1000
			at(t, 101*time.Second, "4500001800000000402f00000a0001097f00000100000000"),
			{Kind: enginetest.StepLoad, Set: 1},
			// the second one, no third
			at(t, 102*time.Second, "4500001800000000402f00000a0001097f00000200000000"),
			// this one is
			at(t, 103*time.Second, "4500001800000000402f00000a0001097f00000300000000"),
		},
	})
}
