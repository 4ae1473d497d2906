package soft

import (
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/firetest"
)

// TestRulesAndTablesSwitchAtOnce: see firetest.RunReplace.
func TestRulesAndTablesSwitchAtOnce(t *testing.T) {
	e, err := New(Options{Options: treaty(), Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	firetest.RunReplace(t, subject{e, func(e *Engine, in *firewall.Input, pkt []byte) (firewall.Verdict, error) {
		return e.Worker(int(pkt[23])&1).Judge(in, pkt), nil
	}}, 3000)
}
