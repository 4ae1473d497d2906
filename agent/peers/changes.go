package peers

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/overlay"
)

// A change of the peers is atomic. The new record is prepared on disk, ranges that must not be
// reached in the clear are closed, the change is made, and the record takes its place. What fails
// before that is undone. Only then are ranges opened that no peer names any more. Of hosts of a
// cluster the record comes last (saving.go).

// Add adds a peer or changes the one of that name.
func (p *Service) Add(r api.AddPeer) (api.Done, error) {
	peer, err := peerOf(r)
	if err != nil {
		return api.Done{}, err
	}
	p.file.Lock()
	defer p.file.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaitCutLocked()
	if err := p.mayAddLocked(peer); err != nil {
		return api.Done{}, err
	}
	if err := p.wantLocked(false); err != nil {
		return api.Done{}, err
	}
	next, pending, err := p.prepareLocked(func() (recorded, error) {
		return p.plus(peer), p.mayAddLocked(peer)
	})
	if err != nil {
		return api.Done{}, err
	}
	defer pending.Discard()
	return p.addLocked(next, pending, peer)
}

// AddHost is Add for a host of a cluster, also when there can be no tunnel now: then the peer's
// ranges are closed until there is one. It does not wait for the disk. Endpoints that are addresses
// of services of this node are left out: a host announces any, and what was here first stays.
func (p *Service) AddHost(r api.AddPeer) error {
	peer, err := peerOf(r)
	if err != nil {
		return err
	}
	peer.Endpoints = slices.DeleteFunc(peer.Endpoints, func(e string) bool {
		a, ok := endpointAddr(e)
		if !ok {
			return false
		}
		taken := p.config.CheckRange(netip.PrefixFrom(a, a.BitLen()))
		if taken != nil {
			p.config.Log.Warn("an endpoint of a host is left out", "name", peer.Name, "endpoint", e,
				"err", taken)
		}
		return taken != nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaitCutLocked()
	if err := p.mayAddLocked(peer); err != nil {
		return err
	}
	_ = p.wantLocked(true) // the status shows it
	_, err = p.addLocked(p.plus(peer), nil, peer)
	return err
}

func (p *Service) mayAddLocked(peer overlay.Peer) error {
	switch {
	case p.unread != nil:
		return errUnread(p.unread)
	case p.closed:
		return errors.New("the node stops")
	}
	return p.checkLocked(peer)
}

// Names returns the names of the peers and of those of which ranges are held.
func (p *Service) Names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Keys(p.byName)), slices.Collect(maps.Keys(p.held)))
}

func (p *Service) addLocked(next recorded, pending *atomicfile.Pending, peer overlay.Peer) (
	api.Done, error) {
	old, changed := p.byName[peer.Name]
	var goes *overlay.Peer
	if changed {
		goes = &old
	}
	if err := p.changeLocked(next, pending, goes, peer); err != nil {
		return api.Done{}, err
	}
	p.config.Log.Info("peer set", "name", peer.Name, "endpoints", peer.Endpoints, "pods", peer.Pods,
		"encrypted", !peer.Unencrypted)
	notes := []string{p.advice(peer)}
	if changed {
		notes = append(notes, p.heldAdvice(peer.Name, without(old.Pods, peer.Pods)))
	}
	return api.Done{Version: api.Version,
		Message: strings.TrimSpace(strings.Join(notes, "\n"))}, nil
}

// wantLocked makes the tunnel now if there is none.
func (p *Service) wantLocked(soon bool) error {
	if p.tunnel.Load() != nil {
		return nil
	}
	err := p.openLocked(soon)
	if len(p.byName) > 0 || p.config.Settings.On {
		p.fault = err
	}
	if err != nil {
		return fmt.Errorf("no tunnel to other nodes: %w%s", err, hintLine(p.openHint(err)))
	}
	p.patient = backoff{}
	for name := range p.byName {
		p.waits[name] = nil
	}
	p.restoreLocked()
	return nil
}

func hintLine(hint string) string {
	if hint == "" {
		return ""
	}
	return "\n  " + hint
}

// plus returns the record after a peer is added or changed. Ranges that it had, and has no longer,
// are held; held ones that it has now are its own.
func (p *Service) plus(peer overlay.Peer) recorded {
	next := recorded{byName: maps.Clone(p.byName), held: map[string][]netip.Prefix{}}
	if old, ok := p.byName[peer.Name]; ok {
		next = p.minus(old, false)
	} else {
		maps.Copy(next.held, p.held)
	}
	next.byName[peer.Name] = peer
	for name, ranges := range next.held {
		left := slices.DeleteFunc(slices.Clone(ranges), func(h netip.Prefix) bool {
			return slices.ContainsFunc(peer.Pods, func(r netip.Prefix) bool {
				return r.Bits() <= h.Bits() && r.Contains(h.Addr())
			})
		})
		if next.held[name] = left; len(left) == 0 {
			delete(next.held, name)
		}
	}
	return next
}

// minus returns the record after a peer is removed. Its ranges are held if they were encrypted,
// unless they are released.
func (p *Service) minus(old overlay.Peer, release bool) recorded {
	next := recorded{byName: maps.Clone(p.byName), held: maps.Clone(p.held)}
	delete(next.byName, old.Name)
	switch {
	case release:
		delete(next.held, old.Name)
	case !old.Unencrypted:
		next.held[old.Name] = append(slices.Clone(next.held[old.Name]),
			without(old.Pods, next.held[old.Name])...)
	}
	return next
}

// changeLocked puts a peer in the place of an old one, which is nil for a new peer. After an error
// everything is as it was. If the device cannot go back, the tunnel is made again.
func (p *Service) changeLocked(next recorded, pending *atomicfile.Pending, old *overlay.Peer,
	with overlay.Peer) error {
	before := p.recorded
	closes := next.closedBesides(before, with.Name)
	err := addBlackholes(closes)
	if err == nil {
		err = p.swapLocked(old, &with)
	}
	undone := !errors.Is(err, overlay.ErrNotUndone)
	if err == nil {
		if err = p.takeLocked(next, pending); err != nil {
			back := p.swapLocked(&with, old)
			undone, err = back == nil, errors.Join(err, back)
		}
	}
	if err != nil {
		err = errors.Join(err, p.goBackLocked(before), deleteBlackholes(closes))
		if old != nil && old.Unencrypted { // its second routes gave way to the blackholes
			err = errors.Join(err, keepPlain(old.Pods))
		}
		if !undone {
			p.remakeLocked(with.Name, err)
		}
		return err
	}
	delete(p.waits, with.Name)
	delete(p.silent, with.Name) // it may have been why
	gone := overlay.Peer{Name: with.Name}
	if old != nil {
		gone = *old
		gone.Pods = without(old.Pods, with.Pods)
		p.cutLocked(gone.Pods, true)
	}
	p.openLeftLocked(before, gone)
	if with.Unencrypted { // behind that: IPv6 deletes by the metric, a blackhole or not
		if err := keepPlain(with.Pods); err != nil {
			p.waits[with.Name] = err
		}
	}
	return nil
}

// removeLocked removes a peer, or what is held of one. It is recorded first: what the device then
// fails to remove goes with the device.
func (p *Service) removeLocked(next recorded, pending *atomicfile.Pending,
	old overlay.Peer) error {
	before := p.recorded
	if err := p.takeLocked(next, pending); err != nil {
		return errors.Join(err, p.goBackLocked(before))
	}
	delete(p.waits, old.Name)
	p.cutLocked(old.Pods, true) // while both ends can still be reached
	if err := p.swapLocked(&old, nil); err != nil {
		p.remakeLocked(old.Name, err)
	}
	p.cutLocked(old.Pods, false) // connections that began in the meantime
	p.openLeftLocked(before, old)
	return nil
}

// remakeLocked makes the tunnel again, with the peers of the record: a change of a peer has failed
// and left it in doubt what the device has.
func (p *Service) remakeLocked(peer string, why error) {
	t := p.tunnel.Swap(nil)
	p.config.Log.Error("the tunnel is made again, since a peer could not be changed", "peer", peer,
		"err", errors.Join(why, t.close()))
	p.restoreLocked()
}

// goBackLocked restores the record as it was before a change.
func (p *Service) goBackLocked(before recorded) error {
	p.recorded = before
	p.saving.changes++
	p.saveSoonLocked() // the file may have the change
	p.rangesLocked()
	return p.config.RangesChanged()
}

// openLeftLocked deletes the routes that no peer wants after a change; gone is the peer with the
// ranges that it lost.
func (p *Service) openLeftLocked(before recorded, gone overlay.Peer) {
	err := deleteBlackholes(before.closedBesides(p.recorded, gone.Name))
	if gone.Unencrypted {
		err = errors.Join(err, removePlain(gone.Pods))
	}
	if err != nil {
		p.config.Log.Error("routes of a peer stay", "peer", gone.Name, "err", err)
	}
}

// takeLocked makes a change effective: in the ranges that others read, in the engine, and on disk,
// soon without a prepared record.
func (p *Service) takeLocked(next recorded, pending *atomicfile.Pending) error {
	p.recorded = next
	p.saving.changes++
	p.rangesLocked()
	if err := p.config.RangesChanged(); err != nil {
		return err
	}
	if pending == nil {
		p.saveSoonLocked()
		return nil
	}
	err := pending.Commit()
	if err == nil { // it has all that there is
		p.saving.unsaved, p.saving.failed = false, nil
		p.saving.filed = p.config.Settings.Name
	}
	return err
}

// swapLocked replaces a peer of the device by another one.
func (p *Service) swapLocked(old, with *overlay.Peer) error {
	t := p.tunnel.Load()
	switch {
	case t == nil:
		return nil // what is recorded is brought back with the tunnel
	case with == nil:
		if err := t.device.RemovePeer(old.Key); !errors.Is(err, overlay.ErrNoPeer) {
			return err
		}
		return nil
	case old == nil:
		return t.device.SetPeer(*with)
	}
	return t.device.ReplacePeer(old.Key, *with)
}

// checkLocked refuses what would collide with this node or other peers.
func (p *Service) checkLocked(peer overlay.Peer) error {
	for _, own := range p.config.Ranges {
		if slices.ContainsFunc(peer.Pods, own.Overlaps) {
			return &api.Error{Message: fmt.Sprintf("peer %s: its pods overlap %s, the range of "+
				"this node's own", peer.Name, own),
				Advice: "weir peer key -j on the other node prints its ranges; both nodes need " +
					"ranges of their own"}
		}
	}
	ranges := slices.Clone(peer.Pods)
	for _, a := range endpointAddrs(peer) {
		ranges = append(ranges, netip.PrefixFrom(a, a.BitLen()))
	}
	for _, r := range ranges {
		if err := p.config.CheckRange(r); err != nil {
			return fmt.Errorf("peer %s: %w", peer.Name, err)
		}
	}
	for _, other := range p.byName {
		if other.Name != peer.Name && other.Key == peer.Key {
			return fmt.Errorf("peer %s: the key is that of peer %s", peer.Name, other.Name)
		}
	}
	return nil
}

// Remove removes a peer. Its ranges stay unreachable if they were encrypted, until they are
// released.
func (p *Service) Remove(r api.RemovePeer) (api.Done, error) {
	p.file.Lock()
	defer p.file.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaitCutLocked()
	var gone overlay.Peer
	next, pending, err := p.prepareLocked(func() (k recorded, err error) {
		k, gone, err = p.withoutLocked(r)
		return k, err
	})
	if err != nil {
		return api.Done{}, err
	}
	defer pending.Discard()
	return p.removedLocked(r, next, pending, gone)
}

// RemoveHost is Remove for a host of a cluster; it does not wait for the disk. There need not be
// such a peer.
func (p *Service) RemoveHost(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaitCutLocked()
	if _, there := p.byName[name]; !there && p.unread == nil {
		return nil
	}
	r := api.RemovePeer{Name: name}
	next, gone, err := p.withoutLocked(r)
	if err == nil {
		_, err = p.removedLocked(r, next, nil, gone)
	}
	return err
}

// withoutLocked returns the record after a removal, and what goes.
func (p *Service) withoutLocked(r api.RemovePeer) (next recorded, gone overlay.Peer, err error) {
	if p.unread != nil {
		return next, gone, errUnread(p.unread)
	}
	old, there := p.byName[r.Name]
	switch held := p.held[r.Name]; {
	case there:
		return p.minus(old, r.Release), old, nil
	case len(held) > 0 && r.Release:
		gone = overlay.Peer{Name: r.Name, Pods: held}
		return p.minus(gone, true), gone, nil
	case len(held) > 0:
		return next, gone, fmt.Errorf("no such peer: %s\n  %s", r.Name,
			p.heldAdvice(r.Name, held))
	}
	return next, gone, &api.Error{Message: "no such peer: " + r.Name, Advice: "weir peer list"}
}

func (p *Service) removedLocked(r api.RemovePeer, next recorded, pending *atomicfile.Pending,
	gone overlay.Peer) (api.Done, error) {
	old := p.byName[r.Name]
	if err := p.removeLocked(next, pending, gone); err != nil {
		return api.Done{}, err
	}
	p.config.Log.Info("peer removed", "name", r.Name, "released", r.Release)
	return api.Done{Version: api.Version, Message: p.heldAdvice(r.Name, old.Pods)}, nil
}

// heldAdvice explains what happens to packets for those of some ranges that are held.
func (p *Service) heldAdvice(name string, ranges []netip.Prefix) string {
	var held []string
	for _, r := range ranges {
		if slices.Contains(p.held[name], r) {
			held = append(held, r.String())
		}
	}
	if held == nil {
		return ""
	}
	return fmt.Sprintf("%s: unreachable from now on, so that nothing goes there unencrypted; to "+
		"let packets take this host's other routes:\n"+
		"  weir peer remove --release %s", strings.Join(held, ","), name)
}
