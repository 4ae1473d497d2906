package soft

import (
	"fmt"
	"math"
	"testing"

	"github.com/weirnet/weir/firewall"
)

// TestLogAmountDoesNotBeginAgain: however many packets a rule matches after its last event, it
// emits no more.
func TestLogAmountDoesNotBeginAgain(t *testing.T) {
	const most = math.MaxUint32
	events := 0
	e := load(t, Options{OnEvent: func(ev *firewall.Event) {
		if ev.Kind == firewall.EventLog {
			events++
		}
	}}, fmt.Sprintf("add 30 deny log logamount %d ip from any to any\n", uint32(most)))
	e.cfg.logs[0].emitted.Store(most - 1)
	for range 5 {
		e.Worker(0).Evaluate(in(1), udp(t, "1.1.1.1:1", "2.2.2.2:2"))
	}
	if n := e.cfg.logs[0].emitted.Load(); events != 1 || n != most {
		t.Errorf("%d events, not 1, and the count is %d", events, n)
	}
}
