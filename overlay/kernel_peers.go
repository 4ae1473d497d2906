package overlay

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/internal/nl"
)

// linkEvery is how often the interface is looked at while no peer has a choice of endpoints.
const linkEvery = time.Second

// put implements wire.
func (d *KernelDevice) put(p *peer, list []netip.AddrPort) error {
	now, err := d.wg.Device(d.link.Index)
	if err != nil {
		return err
	}
	if err := d.wg.SetPeers(d.link.Index, changeTo(p, list, now.Peers)); err != nil {
		return err
	}
	d.setCandidates(p, list)
	return nil
}

// changeTo is the change that makes a peer what it is to be. A peer with a session keeps its
// endpoint: what comes from it decides. To replace the ranges, the kernel takes all away before it
// adds the new ones, and packets to them meet no peer meanwhile. So it is asked to only if one
// goes.
func changeTo(p *peer, list []netip.AddrPort, has []nl.WireGuardPeer) nl.WireGuardChange {
	keepalive := uint16(p.Keepalive / time.Second)
	psk := [32]byte(p.Preshared)
	c := nl.WireGuardChange{Key: p.Key, Preshared: &psk, Keepalive: &keepalive, AllowedIPs: p.Pods}
	var now nl.WireGuardPeer
	if i := slices.IndexFunc(has, func(o nl.WireGuardPeer) bool { return o.Key == p.Key }); i >= 0 {
		now = has[i]
	}
	c.Replace = slices.ContainsFunc(now.AllowedIPs, func(r netip.Prefix) bool {
		return !slices.Contains(p.Pods, r)
	})
	if len(list) > 0 && (!now.Endpoint.IsValid() ||
		!InSession(now.LastHandshake, time.Now()) && !slices.Contains(list, now.Endpoint)) {
		c.Endpoint = list[0]
	}
	return c
}

// drop implements wire.
func (d *KernelDevice) drop(key Key) error {
	if k := d.paths[key]; k != nil {
		d.moved += k.moves
		delete(d.paths, key)
	}
	return d.wg.SetPeers(d.link.Index, nl.WireGuardChange{Key: key, Remove: true})
}

// setCandidates implements wire.
func (d *KernelDevice) setCandidates(p *peer, list []netip.AddrPort) {
	k := d.paths[p.Key]
	if k == nil {
		k = &kernelPath{}
		d.paths[p.Key] = k
	}
	k.candidates = list
}

// rangesChanged implements wire: nothing follows from the ranges.
func (d *KernelDevice) rangesChanged() {}

// currentMTU implements wire.
func (d *KernelDevice) currentMTU() int { return d.mtu }

// lowerMTU implements wire.
func (d *KernelDevice) lowerMTU(mtu int) error {
	if mtu >= d.mtu {
		return nil
	}
	if err := d.nl.SetLinkMTU(d.link.Index, mtu); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	d.mtu = mtu
	d.log.Info("mtu lowered", "interface", d.config.Name, "mtu", mtu)
	return nil
}

// Peers returns all peers with their status, ordered by name. The time of a round trip is not
// known.
func (d *KernelDevice) Peers() ([]PeerStatus, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil
	}
	now, err := d.wg.Device(d.link.Index)
	if err != nil && !errors.Is(err, nl.ErrNoLink) {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	in := map[Key]nl.WireGuardPeer{}
	for _, p := range now.Peers {
		in[p.Key] = p
	}
	var list []PeerStatus
	for key, p := range d.peers {
		s := PeerStatus{Peer: p.Peer}
		s.Endpoints, s.Pods = slices.Clone(p.Endpoints), slices.Clone(p.Pods)
		if p.Unencrypted {
			s.Path = netip.AddrPortFrom(p.routes[0].Via, 0)
		} else {
			s.Path, s.LastHandshake = in[key].Endpoint, in[key].LastHandshake
			s.Received, s.Sent = in[key].Received, in[key].Sent
			if k := d.paths[key]; k != nil {
				s.Moves = k.moves
			}
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b PeerStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return list, nil
}

// Stats returns the counters that the kernel has: Moves.
func (d *KernelDevice) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := Stats{Moves: d.moved}
	for _, k := range d.paths {
		s.Moves += k.moves
	}
	return s
}

// watch gives peers that do not answer their next endpoint, and refreshes names, until Close or
// until the interface is gone.
func (d *KernelDevice) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var looked, named, routed time.Duration
	routes := map[netip.AddrPort]bool{}
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Since(d.began)
		if now-named >= lookupEvery {
			named = now
			d.refreshNames()
		}
		if !d.hasChoice() && now-looked < linkEvery {
			continue
		}
		if looked = now; now-routed >= routeEvery {
			routed = now
			clear(routes)
		}
		if !d.stepPaths(now, routes) {
			d.log.Warn("the interface is gone", "interface", d.config.Name)
			d.ended()
			return
		}
	}
}

func (d *KernelDevice) hasChoice() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.paths {
		if k.hasChoice() {
			return true
		}
	}
	return false
}

// stepPaths takes a sample of all peers. It returns false when the interface is gone. routes is
// what is known of the host's routes.
func (d *KernelDevice) stepPaths(now time.Duration, routes map[netip.AddrPort]bool) bool {
	device, err := d.wg.Device(d.link.Index)
	if errors.Is(err, nl.ErrNoLink) {
		return false
	}
	if err != nil {
		return true // a request that took too long
	}
	reachable := func(a netip.AddrPort) bool {
		ok, known := routes[a]
		if !known {
			r, err := d.nl.RouteTo(a.Addr())
			ok = err == nil && !r.Blackhole() && r.Link != d.link.Index
			routes[a] = ok
		}
		return ok
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range device.Peers {
		d.stepLocked(p, now, reachable)
	}
	return true
}

// stepLocked takes a sample of a peer of the interface, which may have some that are not ours.
func (d *KernelDevice) stepLocked(p nl.WireGuardPeer, now time.Duration,
	reachable func(netip.AddrPort) bool) {
	ours, k := d.peers[p.Key], d.paths[p.Key]
	if ours == nil || k == nil || d.closed {
		return
	}
	to, move := k.step(now, pathSample{received: p.Received, sent: p.Sent, endpoint: p.Endpoint,
		session: InSession(p.LastHandshake, time.Now()), reachable: reachable})
	if !move {
		return
	}
	err := d.wg.SetPeers(d.link.Index, nl.WireGuardChange{Key: p.Key, Only: true, Endpoint: to})
	if more, ok := d.limit.may(kind{"next", p.Key}, int64(now)); ok {
		d.log.Info("the peer does not answer; it gets the next endpoint", "peer", ours.Name,
			"was", p.Endpoint, "next", to, "err", err, "not_logged_before", more)
	}
}
