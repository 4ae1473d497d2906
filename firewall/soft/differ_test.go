package soft

import (
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/firetest"
	"github.com/weirnet/weir/rule"
)

// subject is the engine as the treaty wants it.
type subject struct{ *Engine }

func (s subject) Judge(in *firewall.Input, pkt []byte) (firewall.Verdict, error) {
	return s.Worker(0).Judge(in, pkt), nil
}

func (s subject) Sweep(now time.Duration) error {
	s.Engine.Sweep(now)
	return nil
}

func TestDiffer(t *testing.T) {
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxEmbryonic, o.MaxTracks = 4096, 4096, 4096
	firetest.Run(t, o, rule.AllFeatures, func() (firetest.Subject, error) {
		e, err := New(Options{Options: o})
		return subject{e}, err
	})
}
