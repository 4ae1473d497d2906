package overlay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/internal/nl"
)

// peer is a Peer that the device serves.
type peer struct {
	Peer
	endpoints    *endpoints
	peerEndpoint *peerEndpoint // nil without encryption
	// the routes to its pods, without Dst: one for all, or one for each family
	routes []nl.Route
}

// SetPeer adds a peer, or replaces the one with the same key. Sessions live on as long as the key
// does. Names among the endpoints are looked up now and every half minute; the addresses of a slow
// name are added when they are known. An error changes nothing, unless it is ErrNotUndone.
func (d *peerSet) SetPeer(p Peer) error { return d.ReplacePeer(p.Key, p) }

// ReplacePeer sets a peer in the place of the one with another key, if there is one. Packets to
// ranges that both have go to one of the two at every moment. The exception is an instant in a
// KernelDevice when the key stays and the peer loses a range. An error changes nothing, unless it
// is ErrNotUndone.
func (d *peerSet) ReplacePeer(old Key, p Peer) error {
	if err := p.check(); err != nil {
		return err
	}
	if p.Key == d.PublicKey() {
		return fmt.Errorf("overlay: peer %q has the key of this node", p.Name)
	}
	p.Endpoints, p.Pods = slices.Clone(p.Endpoints), slices.Clone(p.Pods)
	next := &peer{Peer: p, endpoints: newEndpoints(d.config.Resolver, p.Endpoints),
		routes: []nl.Route{{Link: d.link.Index}}}
	if err := d.resolve(next); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return net.ErrClosed
	}
	if err := d.conflict(old, &p); err != nil {
		return err
	}
	defer d.wire.rangesChanged()
	if p.Unencrypted {
		routes, err := d.neighbours(&next.Peer, next.endpoints.list())
		if err != nil {
			return err
		}
		next.routes = routes
	}
	before := d.peers[old]
	err := d.putLocked(next, before)
	if err == nil {
		return nil
	}
	if bad := d.takeBackLocked(next, before); bad != nil {
		return errors.Join(err, fmt.Errorf("%w: %w", ErrNotUndone, bad))
	}
	return err
}

// ErrNotUndone means that a change of a peer has failed and could not be undone. WireGuard or the
// routes may have something of the peer that failed. The device has to be closed.
var ErrNotUndone = errors.New("overlay: a change that failed was not undone")

// conflict returns an error if a peer cannot coexist with the others, except for the one that it
// replaces.
func (d *peerSet) conflict(replaced Key, p *Peer) error {
	for key, other := range d.peers {
		if key == replaced {
			continue
		}
		if key == p.Key {
			return fmt.Errorf("overlay: peer %q: the key is that of peer %q", p.Name, other.Name)
		}
		for _, r := range p.Pods {
			if i := slices.IndexFunc(other.Pods, r.Overlaps); i >= 0 {
				return fmt.Errorf("overlay: peer %q: pod range %s overlaps %s of peer %q", p.Name,
					r, other.Pods[i], other.Name)
			}
		}
	}
	return nil
}

// putLocked adds a peer and routes its ranges to it, and then takes away what is left of the one
// before it. WireGuard has the ranges before the routes exist. After an error takeBackLocked has to
// follow.
func (d *peerSet) putLocked(next, before *peer) error {
	if !next.Unencrypted {
		if err := d.tunnelTo(next); err != nil {
			return err
		}
	}
	if before != nil {
		delete(d.peers, before.Key)
	}
	d.peers[next.Key] = next
	if err := d.addRoutes(next, before); err != nil || before == nil {
		return err
	}
	if err := d.deleteRoutes(before, next.Pods); err != nil {
		return err
	}
	if before.Unencrypted || !next.Unencrypted && before.Key == next.Key {
		return nil
	}
	return d.endTunnel(before)
}

// takeBackLocked undoes what putLocked did before it failed.
func (d *peerSet) takeBackLocked(next, before *peer) error {
	var err error
	delete(d.peers, next.Key)
	var kept []netip.Prefix
	if before != nil {
		d.peers[before.Key] = before
		kept = before.Pods
		if !before.Unencrypted {
			err = d.tunnelTo(before) // takes its ranges back
		}
		err = errors.Join(err, d.addRoutes(before, next))
	}
	err = errors.Join(err, d.deleteRoutes(next, kept))
	if !next.Unencrypted && (before == nil || before.Unencrypted || before.Key != next.Key) {
		err = errors.Join(err, d.endTunnel(next))
	}
	return err
}

// resolve starts the lookup of a new peer's names, and waits for them for nameGrace at most.
func (d *peerSet) resolve(p *peer) error {
	if !p.endpoints.named() {
		return nil
	}
	found := make(chan struct{})
	d.mu.Lock()
	closed := d.closed
	if !closed {
		d.done.Go(func() {
			d.lookUp(p)
			close(found)
		})
	}
	d.mu.Unlock()
	if closed {
		return net.ErrClosed
	}
	select {
	case <-found:
	case <-time.After(nameGrace):
	}
	return nil
}

// lookUp looks the names of a peer up. Each answer is used as soon as it is there: a slow name does
// not delay the others.
func (d *peerSet) lookUp(p *peer) {
	ctx, cancel := context.WithTimeout(d.ctx, lookupTime)
	defer cancel()
	missing := p.endpoints.lookUp(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.peers[p.Key] != p || d.closed {
			return // not added yet, then SetPeer uses them; or removed
		}
		list := p.endpoints.list()
		d.wire.setCandidates(p, list)
		if err := d.fitMTU(list); err != nil {
			d.log.Warn("cannot set the MTU", "peer", p.Name, "err", err)
		}
	})
	if missing != nil && len(p.endpoints.list()) == 0 && d.ctx.Err() == nil {
		d.log.Warn("endpoint not found; will try again", "peer", p.Name, "err", missing)
	}
}

// tunnelTo adds a peer to WireGuard.
func (d *peerSet) tunnelTo(p *peer) error {
	list := p.endpoints.list()
	if err := d.wire.put(p, list); err != nil {
		return fmt.Errorf("overlay: peer %q: %w", p.Name, err)
	}
	return d.fitMTU(list)
}

// endTunnel removes a peer from WireGuard.
func (d *peerSet) endTunnel(p *peer) error {
	if err := d.wire.drop(p.Key); err != nil {
		return fmt.Errorf("overlay: peer %q: %w", p.Name, err)
	}
	return nil
}

// ErrNoPeer means that no peer has the key.
var ErrNoPeer = errors.New("overlay: no such peer")

// RemovePeer removes a peer, its session and its routes. An unknown key is an error, ErrNoPeer.
// After another error the peer is there, perhaps without its routes, and can be removed again.
func (d *peerSet) RemovePeer(key Key) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.peers[key]
	if p == nil {
		return fmt.Errorf("%w: none has the key %s", ErrNoPeer, key)
	}
	if err := d.deleteRoutes(p, nil); err != nil {
		return err
	}
	if !p.Unencrypted {
		if err := d.endTunnel(p); err != nil {
			return err
		}
	}
	delete(d.peers, key)
	d.wire.rangesChanged()
	return nil
}
