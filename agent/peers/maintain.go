package peers

import (
	"net/netip"
	"os"
	"slices"
	"time"
)

const (
	// retryEvery is how often what failed is tried again: a peer whose network is not there yet,
	// routes, the record.
	retryEvery = 5 * time.Second
	// openFirst and openLast are how long after a failure the tunnel is tried again, at first and
	// at last.
	openFirst, openLast = 100 * time.Millisecond, 30 * time.Second
)

// backoff computes when something that fails is tried again: each time later.
type backoff struct {
	pause time.Duration
	at    time.Time
}

func (b *backoff) failed(now time.Time) {
	b.pause = min(max(2*b.pause, openFirst), openLast)
	b.at = now.Add(b.pause)
}

// Begin restores the peers of an earlier run. If it fails, the status shows this, and it is
// retried. The rules have to be in force. It may be called again.
func (p *Service) Begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun || p.closed {
		return
	}
	p.begun = true
	p.restoreLocked()
	p.done.Go(p.watch)
	p.done.Go(p.saveAll)
	p.done.Go(p.keepTimestamps)
}

// watch makes the tunnel again when its interface was deleted, and retries what failed.
func (p *Service) watch() {
	p.openUnknown()
	for repaired := time.Now(); ; {
		var ended <-chan struct{}
		t := p.tunnel.Load()
		if t != nil {
			ended = t.device.Done()
		}
		select {
		case <-p.stop:
			return
		case <-ended:
			p.mu.Lock()
			if p.tunnel.CompareAndSwap(t, nil) { // else a change has closed it
				p.config.Log.Warn("the tunnel was deleted; it is made again", "interface",
					t.device.Name())
				p.fault = t.close()
			}
		case <-time.After(p.rest(time.Until(repaired.Add(retryEvery)))):
			p.mu.Lock()
			if time.Since(repaired) >= retryEvery {
				repaired = time.Now()
				p.repairLocked()
				p.listenLocked(repaired)
			}
		}
		if !p.closed {
			p.restoreLocked()
		}
		p.mu.Unlock()
	}
}

// rest is how long there is nothing to do, at most the given time.
func (p *Service) rest(most time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == nil {
		return most
	}
	return min(most, time.Until(p.patient.at))
}

// repairLocked retries what failed, and restores what other programs deleted.
func (p *Service) repairLocked() {
	switch {
	case p.closed:
	case p.unread != nil:
		p.readLocked()
	case p.leak != nil:
		p.closeLocked()
	default:
		p.leak = keepBlackholes(p.closedRanges())
		if p.tunnel.Load() == nil {
			p.astray = nil
		}
		if t := p.tunnel.Load(); t != nil {
			err := t.device.Reroute()
			if err != nil && p.astray == nil {
				p.config.Log.Warn("cannot set routes to peers", "err", err)
			}
			p.astray = err
		}
	}
}

// openUnknown deletes routes of an agent that died in the middle of a change.
func (p *Service) openUnknown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := os.Stat(p.config.Files.Record); err != nil || p.unread != nil || p.closed {
		return // without a record the routes are of another node, if there are any
	}
	closed := p.closedRanges()
	if err := deleteBlackholesOf(func(r netip.Prefix) bool {
		return !slices.Contains(closed, r)
	}); err != nil {
		p.config.Log.Warn("routes of an earlier agent stay", "err", err)
	}
}

// restoreLocked makes the tunnel if one is wanted and missing, and gives it every peer that it does
// not have.
func (p *Service) restoreLocked() {
	if len(p.byName) == 0 && !p.config.Settings.On {
		p.fault = nil
		return
	}
	if p.tunnel.Load() == nil {
		if time.Now().Before(p.patient.at) {
			return
		}
		before := p.fault
		if p.fault = p.openLocked(false); p.fault != nil {
			if p.patient.failed(time.Now()); before == nil || before.Error() != p.fault.Error() {
				p.config.Log.Error("no tunnel to other nodes", "err", p.fault)
			}
			return
		}
		p.patient = backoff{}
		for name := range p.byName {
			p.waits[name] = nil
		}
	}
	for name := range p.waits {
		if err := p.setLocked(p.byName[name]); err != nil {
			if p.waits[name] == nil {
				p.config.Log.Error("cannot reach a peer", "peer", name, "err", err)
			}
			p.waits[name] = err
			continue
		}
		delete(p.waits, name)
	}
}
