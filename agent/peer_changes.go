package agent

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/overlay"
)

// A change of the peers is whole: the new record is prepared on disk, ranges that must not be
// reached in the clear are closed, the change is made, and the record takes its place. What fails
// before that is undone. Only then are ranges opened that nobody names any more.

// add adds a peer or changes the one of that name.
func (p *peers) add(r api.AddPeer) (api.Done, error) {
	peer, err := peerOf(r)
	if err != nil {
		return api.Done{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unread != nil {
		return api.Done{}, errUnread(p.unread)
	}
	if err := p.checkLocked(peer); err != nil {
		return api.Done{}, err
	}
	if err := p.wantLocked(); err != nil {
		return api.Done{}, err
	}
	old, changed := p.byName[peer.Name]
	next := p.plus(peer)
	var goes *overlay.Peer
	if changed {
		goes = &old
	}
	if err := p.changeLocked(next, goes, peer); err != nil {
		return api.Done{}, err
	}
	p.node.log.Info("peer", "name", peer.Name, "endpoints", peer.Endpoints, "pods", peer.Pods,
		"encrypted", !peer.Unencrypted)
	says := []string{p.node.advice(peer)}
	if changed {
		says = append(says, p.heldAdvice(peer.Name, without(old.Pods, peer.Pods)))
	}
	return api.Done{Version: api.Version, Message: strings.TrimSpace(strings.Join(says, "\n"))}, nil
}

// wantLocked makes the tunnel now if there is none.
func (p *peers) wantLocked() error {
	if p.tunnel.Load() != nil {
		return nil
	}
	err := p.openLocked()
	if len(p.byName) > 0 || p.node.config.Settings.Overlay.On {
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

// plus is what is known once a peer is added or changed. Ranges that it had, and has no longer, are
// held; held ones that it has now are its own.
func (p *peers) plus(peer overlay.Peer) known {
	next := known{byName: maps.Clone(p.byName), held: map[string][]netip.Prefix{}}
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

// minus is what is known once a peer is removed. Its ranges are held if they were encrypted, unless
// they are released.
func (p *peers) minus(old overlay.Peer, release bool) known {
	next := known{byName: maps.Clone(p.byName), held: maps.Clone(p.held)}
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
// everything is as it was.
func (p *peers) changeLocked(next known, old *overlay.Peer, with overlay.Peer) error {
	before := p.known
	pending, err := p.record(next).prepare(p.node.config.Paths.Peers())
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	defer pending.Discard()
	err = stopGaps(without(next.closedRanges(), before.closedRanges()))
	if err == nil {
		err = p.swapLocked(old, &with)
	}
	if err == nil {
		if err = p.takeLocked(next, pending); err != nil {
			err = errors.Join(err, p.swapLocked(&with, old))
		}
	}
	if err != nil {
		return errors.Join(err, p.goBackLocked(before),
			endGaps(without(next.closedRanges(), before.closedRanges())))
	}
	delete(p.waits, with.Name)
	if with.Unencrypted {
		if err := keepPlain(with.Pods); err != nil {
			p.waits[with.Name] = err
		}
	}
	var gone overlay.Peer
	if old != nil {
		gone = *old
		gone.Pods = without(old.Pods, with.Pods)
		p.cutLocked(gone.Pods)
	}
	p.openLeftLocked(before, gone)
	return nil
}

// removeLocked removes a peer, or what is held of one. It is recorded first: what the device then
// refuses to forget goes with the device.
func (p *peers) removeLocked(next known, old overlay.Peer) error {
	before := p.known
	pending, err := p.record(next).prepare(p.node.config.Paths.Peers())
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	defer pending.Discard()
	if err := p.takeLocked(next, pending); err != nil {
		return errors.Join(err, p.goBackLocked(before))
	}
	delete(p.waits, old.Name)
	p.cutLocked(old.Pods) // while there is still a way to both ends
	if err := p.swapLocked(&old, nil); err != nil {
		t := p.tunnel.Swap(nil)
		p.node.log.Error("the tunnel is made again without the peer", "peer", old.Name, "err",
			errors.Join(err, t.close()))
		p.restoreLocked()
	}
	p.cutLocked(old.Pods) // what began meanwhile
	p.openLeftLocked(before, old)
	return nil
}

// goBackLocked lets what was known before a change count again.
func (p *peers) goBackLocked(before known) error {
	p.known = before
	p.rangesLocked()
	return p.node.tellRanges()
}

// openLeftLocked takes back the routes that a change has left without anybody who wants them; gone
// is the peer with the ranges that it lost.
func (p *peers) openLeftLocked(before known, gone overlay.Peer) {
	err := endGaps(without(before.closedRanges(), p.closedRanges()))
	if gone.Unencrypted {
		err = errors.Join(err, removePlain(gone.Pods))
	}
	if err != nil {
		p.node.log.Error("routes of a peer stay", "peer", gone.Name, "err", err)
	}
}

// takeLocked lets a change count: for those who ask what belongs to peers, and on disk.
func (p *peers) takeLocked(next known, pending *atomicfile.Pending) error {
	p.known = next
	p.rangesLocked()
	if err := p.node.tellRanges(); err != nil {
		return err
	}
	return pending.Commit()
}

// swapLocked lets the device know one peer in the place of another one.
func (p *peers) swapLocked(old, with *overlay.Peer) error {
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

// resetTime is how long the tunnel takes to say to the ends of a connection that it is over.
const resetTime = 5 * tunnelTick

// cutLocked ends the connections to ranges that a peer had. Ends that can be reached are told, so
// that nobody waits for what does not come.
func (p *peers) cutLocked(had []netip.Prefix) {
	if len(had) == 0 {
		return
	}
	concerns := func(s firewall.State) bool {
		return slices.ContainsFunc(had, func(r netip.Prefix) bool {
			return r.Contains(s.From.Addr()) || r.Contains(s.To.Addr())
		})
	}
	var errs []error
	if t := p.node.engine.tunnel.Load(); t != nil {
		n, err := t.DeleteStates(concerns)
		if errs = append(errs, err); n > 0 {
			time.Sleep(resetTime)
		}
	}
	_, err := p.node.engine.DeleteStates(concerns)
	if err = errors.Join(append(errs, err)...); err != nil {
		p.node.log.Error("connections to a removed peer may keep their states", "err", err)
	}
}

// tellRanges tells the engine that the pod ranges of peers have changed.
func (n *Node) tellRanges() error {
	if n.pods.Load() == nil {
		return nil
	}
	return n.tellMasquerade()
}

// checkLocked refuses what would collide with this node or other peers.
func (p *peers) checkLocked(peer overlay.Peer) error {
	for _, own := range p.node.config.Settings.Pods.Ranges {
		if slices.ContainsFunc(peer.Pods, own.Overlaps) {
			return fmt.Errorf("peer %s: its pods overlap %s, the range of this node's own",
				peer.Name, own)
		}
	}
	for _, other := range p.byName {
		if other.Name != peer.Name && other.Key == peer.Key {
			return fmt.Errorf("peer %s: the key is that of peer %s", peer.Name, other.Name)
		}
	}
	return nil
}

// remove removes a peer. Its ranges stay unreachable if they were encrypted, until they are
// released.
func (p *peers) remove(r api.RemovePeer) (api.Done, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unread != nil {
		return api.Done{}, errUnread(p.unread)
	}
	old, there := p.byName[r.Name]
	switch held := p.held[r.Name]; {
	case there:
		if err := p.removeLocked(p.minus(old, r.Release), old); err != nil {
			return api.Done{}, err
		}
	case len(held) > 0 && r.Release:
		gone := overlay.Peer{Name: r.Name, Pods: held}
		if err := p.removeLocked(p.minus(gone, true), gone); err != nil {
			return api.Done{}, err
		}
	case len(held) > 0:
		return api.Done{}, fmt.Errorf("no such peer: %s\n  %s", r.Name, p.heldAdvice(r.Name, held))
	default:
		return api.Done{}, fmt.Errorf("no such peer: %s", r.Name)
	}
	p.node.log.Info("peer removed", "name", r.Name, "released", r.Release)
	return api.Done{Version: api.Version, Message: p.heldAdvice(r.Name, old.Pods)}, nil
}

// heldAdvice says what becomes of packets for those of some ranges that are held.
func (p *peers) heldAdvice(name string, ranges []netip.Prefix) string {
	var held []string
	for _, r := range ranges {
		if slices.Contains(p.held[name], r) {
			held = append(held, r.String())
		}
	}
	if held == nil {
		return ""
	}
	return fmt.Sprintf("%s: unreachable from now on, so that nothing goes there in the clear; to "+
		"let packets take this host's other routes:\n"+
		"  weir peer remove --release %s", strings.Join(held, ","), name)
}
