package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/overlay"
)

// list tells of the peers and how they are.
func (p *peers) list() (api.Peers, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := api.Peers{Version: api.Version, Interface: p.node.config.Settings.Overlay.Name, Peers: []api.Peer{}}
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
	return a, nil
}

// key returns the node's public key; it makes a key the first time.
func (p *peers) key() (api.PeerKey, error) {
	k, err := p.node.tunnelKey()
	if err != nil {
		return api.PeerKey{}, err
	}
	return api.PeerKey{Version: api.Version, Key: k.Public().String(), Port: p.node.config.Settings.Overlay.Port,
		Pods: slices.Concat([]netip.Prefix{}, p.node.config.Settings.Pods.Ranges)}, nil
}

// problems tells what the status has to show.
func (p *peers) problems() (all []api.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault != nil {
		all = append(all, api.Problem{What: "no tunnel to other nodes: " + p.fault.Error(), Advice: "weir peer list"})
	}
	for _, name := range slices.Sorted(maps.Keys(p.waits)) {
		if err := p.waits[name]; err != nil {
			all = append(all, api.Problem{What: fmt.Sprintf("peer %s cannot be reached: %v", name, err), Advice: "weir peer list"})
		}
	}
	return all
}

func peerOf(r api.AddPeer) (overlay.Peer, error) {
	p := overlay.Peer{Name: r.Name, Endpoints: r.Endpoints, Pods: r.Pods, Plain: r.Plain, Keepalive: time.Duration(r.Keepalive) * time.Second}
	if r.Name == "" || len(r.Name) > 63 || strings.ContainsFunc(r.Name, func(c rune) bool { return c <= ' ' || c == 127 }) {
		return p, fmt.Errorf("peer %q: a name has 1 to 63 characters and no blanks", r.Name)
	}
	if len(r.Pods) == 0 {
		return p, fmt.Errorf("peer %s: no pod ranges; without any, nothing is sent there", r.Name)
	}
	var err error
	if p.Key, err = overlay.ParseKey(r.Key); err != nil {
		return p, fmt.Errorf("peer %s: public key: %w", r.Name, err)
	}
	if r.Preshared != "" {
		if p.Preshared, err = overlay.ParseKey(r.Preshared); err != nil {
			return p, fmt.Errorf("peer %s: pre-shared key: %w", r.Name, err)
		}
	}
	return p, nil
}

func peerView(s overlay.PeerStatus) api.Peer {
	v := api.Peer{Name: s.Name, Key: s.Key.String(), Endpoints: s.Endpoints, Pods: s.Pods, Keepalive: int(s.Keepalive / time.Second),
		Encrypted: !s.Plain, Preshared: !s.Preshared.IsZero(), RTTSeconds: s.RTT.Seconds(), Received: s.Received, Sent: s.Sent, Moves: s.Moves}
	if s.Path.IsValid() {
		v.Path = s.Path.String()
		if s.Plain {
			v.Path = s.Path.Addr().String()
		}
	}
	if !s.LastHandshake.IsZero() {
		v.Handshake = &s.LastHandshake
	}
	return v
}
