package watch

import (
	"errors"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
)

// countersThatFail are those of an engine that cannot read them for a while, and pods without any.
type countersThatFail struct {
	Engine
	Pods
	packets uint64
	fails   error
}

func (c *countersThatFail) Decisions() (map[firewall.Decision]firewall.Count, error) {
	return map[firewall.Decision]firewall.Count{passesIn: {Packets: c.packets}}, nil
}

func (c *countersThatFail) Rules() ([]firewall.RuleCounter, error) {
	return []firewall.RuleCounter{{Key: 1, Number: 1, Packets: c.packets}}, c.fails
}

func (c *countersThatFail) List() (api.Pods, error) { return api.Pods{}, nil }

// TestSamplerAfterAFailure: a sample for which counters cannot be read is counted, and the next one
// has what it lacks, of everything and over the whole time.
func TestSamplerAfterAFailure(t *testing.T) {
	c := &countersThatFail{}
	o := &Observer{config: Config{Engine: c, Pods: c},
		history: newHistory(func(int, uint16) string { return "" })}
	for _, fails := range []error{nil, errors.New("busy"), errors.New("busy"), nil} {
		c.fails = fails
		o.sample()
		c.packets += 10
	}
	a := o.history.view(0, o.clock.wall)
	if len(a.Times) != 1 || a.Traffic.PacketsIn[0] != 30 || a.Rules[0].Packets[0] != 30 {
		t.Errorf("the history is %+v", a)
	}
	if taken, failed := o.sampled.taken.Load(), o.sampled.failed.Load(); taken != 2 || failed != 2 {
		t.Errorf("%d samples and %d failures", taken, failed)
	}
}

// TestSamplerTakesLittle: it works for a hundredth of the time at most, whatever a sample costs.
func TestSamplerTakesLittle(t *testing.T) {
	for took := time.Microsecond; took < time.Minute; took *= 2 {
		if every := took + pauseAfter(took); every < sampleEvery || every < 100*took {
			t.Errorf("a sample of %v comes every %v", took, every)
		}
	}
	if every := time.Millisecond + pauseAfter(time.Millisecond); every != sampleEvery {
		t.Errorf("samples come every %v", every)
	}
}
