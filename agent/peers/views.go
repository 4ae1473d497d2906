package peers

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/overlay"
)

// List returns the peers and their state.
func (p *Service) List() (api.Peers, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := api.Peers{Version: api.Version, Interface: p.config.Settings.Name,
		Peers: []api.Peer{}}
	how := map[overlay.Key]overlay.PeerStatus{}
	if t := p.tunnel.Load(); t != nil {
		a.Key, a.Port = t.device.PublicKey().String(), t.device.Port()
		list, err := t.device.Peers()
		if err != nil {
			return a, err
		}
		for _, s := range list {
			how[s.Key] = s
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		s, ok := how[p.byName[name].Key]
		if !ok {
			s.Peer = p.byName[name]
		}
		v := peerView(s)
		if err := p.waits[name]; err != nil {
			v.Problem = err.Error()
		}
		a.Peers = append(a.Peers, v)
	}
	for _, name := range slices.Sorted(maps.Keys(p.held)) {
		a.Held = append(a.Held, api.HeldRanges{Name: name, Pods: p.held[name]})
	}
	return a, nil
}

// NameByEndpoint returns the name of a peer that has an address as endpoint, or is reached there
// now, "" for none. A host of a cluster announces its endpoints, and a stolen one any addresses. So
// of its endpoints only that counts at which it is reached.
func (p *Service) NameByEndpoint(a netip.Addr) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, peer := range p.byName {
		if !isHost(name) && slices.Contains(endpointAddrs(peer), a) {
			return name
		}
	}
	t := p.tunnel.Load()
	if t == nil {
		return ""
	}
	list, err := t.device.Peers()
	if err != nil {
		return "" // the interface is gone, which watch sees
	}
	for _, s := range list {
		if isReached(&s, a) {
			return s.Name
		}
	}
	return ""
}

func isHost(peer string) bool { return strings.HasPrefix(peer, api.HostPeer) }

// isReached reports whether packets to a peer go to an address. A host has to have answered: before
// that the address may be one that it has made up.
func isReached(s *overlay.PeerStatus, a netip.Addr) bool {
	return s.Path.Addr().Unmap() == a && (!isHost(s.Name) || !s.LastHandshake.IsZero())
}

// endpointAddrs are the addresses among the endpoints of a peer; the others are names.
func endpointAddrs(peer overlay.Peer) (all []netip.Addr) {
	for _, e := range peer.Endpoints {
		if a, ok := endpointAddr(e); ok {
			all = append(all, a)
		}
	}
	return all
}

// endpointAddr is the address of an endpoint; ok is false for a name.
func endpointAddr(endpoint string) (a netip.Addr, ok bool) {
	host, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		host = endpoint // of a peer without encryption
	}
	a, err = netip.ParseAddr(host)
	return a.Unmap(), err == nil
}

// Key returns the node's public key; it makes a key the first time.
func (p *Service) Key() (api.PeerKey, error) {
	k, err := p.config.key()
	if err != nil {
		return api.PeerKey{}, err
	}
	return api.PeerKey{Version: api.Version, Key: k.Public().String(),
		Port: p.config.Settings.Port,
		Pods: slices.Concat([]netip.Prefix{}, p.config.Ranges)}, nil
}

// problemTimeout is how long the status waits for a change of the peers to end.
const problemTimeout = time.Second

// Problems returns what the status has to show. A change of the peers may take long: it waits for
// the disk.
func (p *Service) Problems() (all []api.Problem) {
	for end := time.Now().Add(problemTimeout); !p.mu.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return []api.Problem{{What: "a change of the peers has not ended, and until " +
				"then other problems of peers are not shown",
				Advice: "look at the disk: dmesg, iostat"}}
		}
	}
	defer p.mu.Unlock()
	if p.unread != nil {
		all = append(all, api.Problem{What: "cannot read the record of peers: " + p.unread.Error(),
			Advice: "Weir tries again; ranges that can be read in it stay unreachable"})
	}
	if aside := p.asideFiles(); len(aside) > 0 {
		all = append(all, api.Problem{What: "the record of peers was damaged and set aside as " +
			strings.Join(aside, ", "),
			Advice: "weir peer list shows the peers; add those that are missing: weir peer add; " +
				"then remove the file"})
	}
	all = append(all, p.savingProblemsLocked()...)
	all = append(all, p.clockProblemsLocked()...)
	if p.leak != nil {
		all = append(all,
			api.Problem{What: "packets for peers may leave unencrypted while there is no tunnel: " +
				p.leak.Error(), Advice: "Weir tries again"})
	}
	if p.fault != nil {
		all = append(all, api.Problem{What: "no tunnel to other nodes: " + p.fault.Error(),
			Advice: p.openHint(p.fault)})
	}
	if p.astray != nil {
		all = append(all,
			api.Problem{What: "another program deleted routes to peers, and they cannot be set " +
				"again: " + p.astray.Error(), Advice: "look at the interface: ip link show " +
				p.config.Settings.Name + "; Weir tries again"})
	}
	for _, name := range slices.Sorted(maps.Keys(p.waits)) {
		if err := p.waits[name]; err != nil {
			all = append(all, api.Problem{What: fmt.Sprintf("peer %s cannot be reached: %v", name,
				err), Advice: "weir peer list"})
		}
	}
	return append(all, p.silentProblemsLocked(time.Now())...)
}

// asideFiles are the damaged records that were set aside and not removed yet.
func (p *Service) asideFiles() []string {
	all, err := filepath.Glob(p.config.Files.Record + ".damaged*")
	if err != nil {
		return nil // only for a pattern that makes no sense
	}
	return all
}

// openHint advises what to do about a tunnel that cannot be made.
func (p *Service) openHint(err error) string {
	s := p.config.Settings
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Sprintf("another program has UDP port %d (ss -ulpn 'sport = %d'): end it, or "+
			"set [overlay] port; Weir tries again", s.Port, s.Port)
	case errors.Is(err, overlay.ErrNoKernel):
		return "Linux has it as the module wireguard: modprobe wireguard shows why it cannot be " +
			"loaded; or set backend = \"auto\" or \"user\" in [overlay]; Weir tries again"
	case errors.Is(err, overlay.ErrNameTaken):
		return fmt.Sprintf("ip link show %s: remove it, or set [overlay] name; Weir tries again",
			s.Name)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "raise the limit of open files (LimitNOFILE=); Weir tries again"
	}
	return "Weir tries again; weir peer list"
}

func peerOf(r api.AddPeer) (overlay.Peer, error) {
	p := overlay.Peer{Name: r.Name, Endpoints: r.Endpoints, Pods: r.Pods, Unencrypted: r.Plain,
		Keepalive: time.Duration(r.Keepalive) * time.Second}
	if r.Name == "" || len(r.Name) > 63 || strings.ContainsFunc(r.Name, func(c rune) bool {
		return c <= ' ' || c == 127
	}) {
		return p, fmt.Errorf("peer %q: a name has 1 to 63 characters and no blanks", r.Name)
	}
	if len(r.Pods) == 0 {
		return p, fmt.Errorf("peer %s: pod ranges are missing: give --pods RANGE", r.Name)
	}
	var err error
	if p.Key, err = overlay.ParseKey(r.Key); err != nil {
		return p, &api.Error{Message: fmt.Sprintf("peer %s: public key: %v", r.Name, err),
			Advice: "weir peer key on the other node prints it"}
	}
	if r.Preshared != "" {
		if p.Preshared, err = overlay.ParseKey(r.Preshared); err != nil {
			return p, fmt.Errorf("peer %s: pre-shared key: %w", r.Name, err)
		}
	}
	return p, nil
}

func peerView(s overlay.PeerStatus) api.Peer {
	v := api.Peer{Name: s.Name, Key: s.Key.String(), Endpoints: s.Endpoints, Pods: s.Pods,
		Keepalive: int(s.Keepalive / time.Second),
		Encrypted: !s.Unencrypted, Preshared: !s.Preshared.IsZero(), RTTSeconds: s.RTT.Seconds(),
		Received: s.Received, Sent: s.Sent, Moves: s.Moves,
		DroppedQueueFull: s.WaitFull, DroppedNoSession: s.WaitLate}
	if s.Path.IsValid() {
		v.Path = s.Path.String()
		if s.Unencrypted {
			v.Path = s.Path.Addr().String()
		}
	}
	if !s.LastHandshake.IsZero() {
		v.Handshake = &s.LastHandshake
	}
	return v
}
