package overlay

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirnet/weir/internal/nl"
)

// peer is a Peer that the device serves.
type peer struct {
	Peer
	ways   *endpoints
	paths  *paths     // nil without encryption
	routes []nl.Route // how its pods are reached, but for Dst: one that fits all, or one of each family
}

// SetPeer adds a peer, or replaces the one with the same key. Sessions live on as long as the key does. Names among the
// endpoints are looked up now and every half minute; those that take long are waited for by a plain peer only, and join the others
// when they are known.
func (d *Device) SetPeer(p Peer) error {
	if err := p.check(); err != nil {
		return err
	}
	if p.Key == d.PublicKey() {
		return fmt.Errorf("overlay: peer %q has the key of this node", p.Name)
	}
	p.Endpoints, p.Pods = slices.Clone(p.Endpoints), slices.Clone(p.Pods)
	next := &peer{Peer: p, ways: newEndpoints(p.Endpoints), routes: []nl.Route{{Link: d.link.Index}}}
	if err := d.findOut(next); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return net.ErrClosed
	}
	for key, other := range d.peers {
		for _, r := range p.Pods {
			if i := slices.IndexFunc(other.Pods, r.Overlaps); key != p.Key && i >= 0 {
				return fmt.Errorf("overlay: peer %q: pod range %s overlaps %s of peer %q", p.Name, r, other.Pods[i], other.Name)
			}
		}
	}
	var err error
	if p.Plain {
		next.routes, err = d.neighbours(&p, next.ways.list())
	} else {
		err = d.tunnelTo(next)
	}
	if err != nil {
		return err
	}
	old := d.peers[p.Key]
	d.peers[p.Key] = next
	err = d.addRoutes(next)
	if old == nil {
		return err
	}
	if p.Plain && !old.Plain {
		err = errors.Join(err, d.endTunnel(old))
	}
	old.Pods = slices.DeleteFunc(old.Pods, func(r netip.Prefix) bool { return slices.Contains(p.Pods, r) })
	return errors.Join(err, d.deleteRoutes(old))
}

// findOut has the names of a new peer looked up, and waits for them as long as it is worth it.
func (d *Device) findOut(p *peer) error {
	if !p.ways.named() {
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
	patience := nameGrace
	if p.Plain {
		patience = lookupTime
	}
	select {
	case <-found:
	case <-time.After(patience):
	}
	return nil
}

// lookUp looks the names of a peer up. Each answer is used as soon as it is there: a slow name holds nobody up.
func (d *Device) lookUp(p *peer) {
	ctx, cancel := context.WithTimeout(d.ctx, lookupTime)
	defer cancel()
	missing := p.ways.lookUp(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.peers[p.Key] != p || d.closed {
			return // not yet, then SetPeer uses them; or no longer
		}
		list := p.ways.list()
		if p.Plain {
			d.reroute(p, list)
			return
		}
		p.paths.setCandidates(list)
		if err := d.fitMTU(list); err != nil {
			d.log.Warn("mtu", "peer", p.Name, "error", err)
		}
	})
	if missing != nil && len(p.ways.list()) == 0 && d.ctx.Err() == nil {
		d.log.Warn("endpoint not found; will try again", "peer", p.Name, "error", missing)
	}
}

// tunnelTo makes a peer known to WireGuard.
func (d *Device) tunnelTo(p *peer) error {
	list := p.ways.list()
	p.paths = d.bind.addPaths(p.Key)
	p.paths.setCandidates(list)
	if err := d.wg.IpcSet(p.uapi()); err != nil {
		return fmt.Errorf("overlay: peer %q: %w", p.Name, err)
	}
	return d.fitMTU(list)
}

// endTunnel makes WireGuard forget a peer.
func (d *Device) endTunnel(p *peer) error {
	if err := d.wg.IpcSet("public_key=" + p.Key.hex() + "\nremove=true\n"); err != nil {
		return fmt.Errorf("overlay: peer %q: %w", p.Name, err)
	}
	d.bind.dropPaths(p.Key)
	return nil
}

// neighbours finds the first candidate of each family that is reached without a router: packets to pods would be lost behind one.
func (d *Device) neighbours(p *Peer, candidates []netip.AddrPort) ([]nl.Route, error) {
	var routes []nl.Route
	for _, a := range candidates {
		r, err := d.nl.RouteTo(a.Addr())
		if err != nil || r.Via.IsValid() || r.Link == d.link.Index {
			continue
		}
		if !slices.ContainsFunc(routes, func(o nl.Route) bool { return o.Via.Is4() == a.Addr().Is4() }) {
			routes = append(routes, nl.Route{Via: a.Addr(), Link: r.Link})
		}
	}
	if routes == nil {
		return nil, fmt.Errorf("overlay: peer %q: no endpoint is on a network of this host, so its pods cannot be reached without encryption", p.Name)
	}
	return routes, nil
}

// reroute sends packets to a plain peer where it is now. A family of which no address is a neighbour keeps the one that it had. The caller
// holds mu.
func (d *Device) reroute(p *peer, candidates []netip.AddrPort) {
	routes, err := d.neighbours(&p.Peer, candidates)
	if err != nil {
		d.log.Warn("the peer's old address is kept", "peer", p.Name, "error", err)
		return
	}
	for _, old := range p.routes {
		if !slices.ContainsFunc(routes, func(r nl.Route) bool { return r.Via.Is4() == old.Via.Is4() }) {
			routes = append(routes, old)
		}
	}
	if slices.Equal(routes, p.routes) {
		return
	}
	d.log.Info("peer moved", "peer", p.Key.String(), "from", p.routes[0].Via.String(), "to", routes[0].Via.String())
	p.routes = routes
	if err := d.addRoutes(p); err != nil { // they take the place of the old ones
		d.log.Warn("routes", "peer", p.Name, "error", err)
	}
	if d.config.Rerouted != nil {
		d.config.Rerouted()
	}
}

// routeTo returns the route to a range of pods.
func (p *peer) routeTo(r netip.Prefix) (nl.Route, error) {
	for _, route := range p.routes {
		if !route.Via.IsValid() || route.Via.Is4() == r.Addr().Is4() {
			route.Dst = r
			return route, nil
		}
	}
	return nl.Route{}, fmt.Errorf("overlay: peer %q: pods %s cannot be routed without encryption by %s; name an endpoint of their family, too",
		p.Name, r, p.routes[0].Via)
}

// RemovePeer forgets a peer, its session and its routes. An unknown key is an error.
func (d *Device) RemovePeer(key Key) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.peers[key]
	if p == nil {
		return fmt.Errorf("overlay: no peer has the key %s", key)
	}
	if !p.Plain {
		if err := d.endTunnel(p); err != nil {
			return err
		}
	}
	delete(d.peers, key)
	return d.deleteRoutes(p)
}

// uapi is the peer in the configuration protocol of WireGuard.
func (p *Peer) uapi() string {
	var b strings.Builder
	fmt.Fprintf(&b, "public_key=%s\npreshared_key=%s\nendpoint=%s@\npersistent_keepalive_interval=%d\nreplace_allowed_ips=true\n",
		p.Key.hex(), p.Preshared.hex(), p.Key.hex(), int(p.Keepalive/time.Second))
	for _, r := range p.Pods {
		fmt.Fprintf(&b, "allowed_ip=%s\n", r)
	}
	return b.String()
}

func (d *Device) addRoutes(p *peer) error {
	var errs error
	for _, r := range p.Pods {
		route, err := p.routeTo(r)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		if err := d.nl.ReplaceRoute(route); err != nil {
			errs = errors.Join(errs, fmt.Errorf("overlay: %w", err))
		}
	}
	return errs
}

func (d *Device) deleteRoutes(p *peer) error {
	var errs error
	for _, r := range p.Pods {
		route, err := p.routeTo(r)
		if err != nil {
			continue // it was never set
		}
		if err := d.nl.DeleteRoute(route); err != nil {
			errs = errors.Join(errs, fmt.Errorf("overlay: %w", err))
		}
	}
	return errs
}

// Peers returns all peers and how they are doing, by name.
func (d *Device) Peers() ([]PeerStatus, error) {
	text, err := d.wg.IpcGet()
	if err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []PeerStatus
	var s *PeerStatus
	var sec int64
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		if key == "public_key" {
			s = nil
			k, err := parseHexKey(value)
			if p := d.peers[k]; err == nil && p != nil {
				list = append(list, p.status())
				s = &list[len(list)-1]
			}
		}
		if s == nil {
			continue
		}
		n, _ := strconv.ParseInt(value, 10, 64)
		switch key {
		case "last_handshake_time_sec":
			sec = n
		case "last_handshake_time_nsec":
			if sec != 0 || n != 0 {
				s.LastHandshake = time.Unix(sec, n)
			}
		case "tx_bytes":
			s.Sent = uint64(n)
		case "rx_bytes":
			s.Received = uint64(n)
		}
	}
	for _, p := range d.peers {
		if p.Plain {
			list = append(list, p.status())
		}
	}
	slices.SortFunc(list, func(a, b PeerStatus) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.Key.String(), b.Key.String())
	})
	return list, nil
}

func (p *peer) status() PeerStatus {
	s := PeerStatus{Peer: p.Peer}
	s.Endpoints, s.Pods = slices.Clone(p.Endpoints), slices.Clone(p.Pods)
	if p.Plain {
		s.Path = netip.AddrPortFrom(p.routes[0].Via, 0)
		return s
	}
	s.RTT, s.Moves = time.Duration(p.paths.rtt.Load()), p.paths.moves.Load()
	if h := p.paths.current.Load(); h != nil {
		s.Path = h.addr
	}
	return s
}

func parseHexKey(s string) (Key, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(Key{}) {
		return Key{}, errors.New("overlay: a key in this place is 64 hexadecimal digits")
	}
	return Key(b), nil
}
