package soft

import (
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
)

// TestRulesAndTablesSwitchAtOnce: see enginetest.RunReplace.
func TestRulesAndTablesSwitchAtOnce(t *testing.T) { switchAtOnce(t, 300) }

// TestLongRulesAndTablesSwitchAtOnce does so more often.
func TestLongRulesAndTablesSwitchAtOnce(t *testing.T) { switchAtOnce(t, 3000) }

func switchAtOnce(t *testing.T, times int) {
	t.Helper()
	e, err := New(Options{Options: testOptions(), Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	enginetest.RunReplace(t, subject{e,
		func(e *Engine, in *firewall.Input, pkt []byte) (firewall.Verdict, error) {
			return e.Worker(int(pkt[23])&1).Evaluate(in, pkt), nil
		}}, times)
}

// TestLoadTakesEveryFlowName: see enginetest.RunFlowNames.
func TestLoadTakesEveryFlowName(t *testing.T) {
	e, err := New(Options{Options: testOptions(), Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	enginetest.RunFlowNames(t, subject{e, byFirst})
}

// TestRouterTakesPackets: see enginetest.RunRouter.
func TestRouterTakesPackets(t *testing.T) {
	e, err := New(Options{Options: testOptions(), Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	enginetest.RunRouter(t, subject{e, byFirst})
}

// TestLocalRoutesAreMe: see enginetest.RunLocalRoutes.
func TestLocalRoutesAreMe(t *testing.T) {
	e, err := New(Options{Options: testOptions(), Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	enginetest.RunLocalRoutes(t, subject{e, byFirst})
}
