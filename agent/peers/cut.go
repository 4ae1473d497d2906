package peers

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/firewall"
)

const (
	// resetTime is how long the tunnel takes to send the resets that its engine has handed out.
	resetTime = 5 * tunnelTick
	// resetsWithin is how long the engine may take to hand all of them out. The most that it
	// keeps take two thirds of a second, on a host that has the time.
	resetsWithin = 5 * time.Second
)

// cutLocked ends the connections to ranges that a peer had. Ends that can be reached get a reset,
// so that they do not wait for packets that never come; wait says that they can be reached until it
// returns. It releases mu meanwhile, since that may take seconds. No other change of the peers
// begins until it has returned: what was read of them before it is true behind it.
func (p *Service) cutLocked(had []netip.Prefix, wait bool) {
	if len(had) == 0 {
		return
	}
	p.cutting = true
	p.mu.Unlock()
	err := p.cut(had, wait)
	p.mu.Lock()
	p.cutting = false
	p.cutDone.Broadcast()
	if err != nil {
		p.config.Log.Error("connections to a removed peer may keep their states", "err", err)
	}
}

// awaitCutLocked waits for cutLocked. Each change of the peers begins with it.
func (p *Service) awaitCutLocked() {
	for p.cutting {
		p.cutDone.Wait()
	}
}

func (p *Service) cut(had []netip.Prefix, wait bool) error {
	concerns := func(s firewall.State) bool {
		return slices.ContainsFunc(had, func(r netip.Prefix) bool {
			return r.Contains(s.From.Addr()) || r.Contains(s.To.Addr())
		})
	}
	var bad error
	if t := p.tunnel.Load(); t != nil && t.engine != nil {
		var n int
		if n, bad = t.engine.DeleteStates(concerns); n > 0 && wait {
			end := time.Now().Add(resetsWithin)
			for t.engine.Resets() > 0 && time.Now().Before(end) {
				time.Sleep(tunnelTick)
			}
			time.Sleep(resetTime)
		}
	}
	_, err := p.config.Engine.DeleteStates(concerns)
	return errors.Join(bad, err)
}
