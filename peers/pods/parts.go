package main

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/pod"
)

const port = 7000

// cpu is where the threads of the measurements on one processor run; what RPS moves goes to the
// other.
const (
	cpu   = 0
	other = "2"
)

// between is a pair of pods on two hosts, or of the hosts themselves. A helper, if any, carries
// packets to pods.
func (b *bench) between(prepare func(*host) error, pods bool, helper asm.BuiltinFunc) (p pair,
	ends []*nstest.Node, err error) {
	p = pair{port: port, cpu: cpu}
	x, err := b.newHost()
	if err != nil {
		return p, nil, err
	}
	y, err := b.newHost()
	if err != nil {
		return p, nil, err
	}
	if err := errors.Join(prepare(x), prepare(y)); err != nil {
		return p, nil, err
	}
	if err := b.wire(x, y); err != nil {
		return p, nil, err
	}
	if !pods {
		p.from, p.on, p.to = x.Node, y.Node,
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(x.number), 2}), port)
		return p, []*nstest.Node{x.Node, y.Node}, nil
	}
	from, _, err := x.addPod("a")
	if err != nil {
		return p, nil, err
	}
	on, to, err := y.addPod("b")
	if err != nil {
		return p, nil, err
	}
	p.from, p.on, p.to = from, on, netip.AddrPortFrom(to, port)
	if helper != 0 {
		err = errors.Join(x.bare(y, helper), y.bare(x, helper))
	}
	return p, []*nstest.Node{from, on}, err
}

// onlyRedirect is the name of the variant that is the best that such a path can do.
const onlyRedirect = "bpf_redirect_peer, nothing else"

// remote measures from a pod to one on another host.
func (b *bench) remote() error {
	nothing := func(*host) error { return nil }
	withEngine := func(h *host) error { return h.startEngine(false) }
	var variants []*variant
	var ends []*nstest.Node
	for _, w := range []struct {
		name    string
		prepare func(*host) error
		pods    bool
		helper  asm.BuiltinFunc
	}{
		{"weir", withEngine, true, 0},
		{"weir, bpf_redirect", func(h *host) error { return h.startEngine(true) }, true, 0},
		{"routing, nft", (*host).filter, true, 0},
		{"routing", nothing, true, 0},
		{"host to host", nothing, false, 0},
		{"host to host, weir's rules", withEngine, false, 0},
		{onlyRedirect, nothing, true, asm.FnRedirectPeer},
		{"bpf_redirect, nothing else", nothing, true, asm.FnRedirect},
	} {
		p, nodes, err := b.between(w.prepare, w.pods, w.helper)
		if err != nil {
			return err
		}
		if w.pods {
			ends = append(ends, nodes...)
		}
		variants = append(variants, &variant{name: w.name, turn: p.transactions})
	}
	if err := b.play(variants); err != nil {
		return err
	}
	print("Pod to remote pod, one processor", "transactions/s", 1, variants,
		[]target{{beside: "routing, nft", rate: 1.10}, {beside: "host to host", rate: 0.90},
			{beside: onlyRedirect, rate: 0.95, p99: 1.1}})
	for _, n := range ends {
		if err := spread(n, other); err != nil {
			return err
		}
	}
	for _, w := range variants {
		w.rates, w.late = nil, [3][]float64{}
	}
	if err := b.play(variants); err != nil {
		return err
	}
	print("Pod to remote pod, RPS of the pod's interface to the other processor", "transactions/s",
		1, variants,
		[]target{{beside: "weir, bpf_redirect", rate: 3.0},
			{beside: "host to host", rate: 0.95, p99: 1.2},
			{beside: onlyRedirect, rate: 0.95, p99: 1.1}})
	return nil
}

// local measures between two pods of one host.
func (b *bench) local() error {
	var rr, streams, loose []*variant
	add := func(name string, from, on *nstest.Node, to netip.Addr) {
		p := pair{from: from, on: on, to: netip.AddrPortFrom(to, port), port: port, cpu: cpu}
		rr = append(rr, &variant{name: name, turn: p.transactions})
		streams = append(streams, &variant{name: name, turn: p.stream})
		p.cpu = -1
		loose = append(loose, &variant{name: name, turn: p.stream})
	}
	for _, w := range []struct {
		name    string
		prepare func(*host) error
		plugins []string
	}{
		{"weir", func(h *host) error { return h.startEngine(false) }, nil},
		{"routing", func(*host) error { return nil }, nil},
		{"routing, nft", (*host).filter, nil},
		{"bridge", nil, []string{"bridge"}},
		{"ptp", nil, []string{"ptp"}},
		{"bridge, firewall, portmap", nil, []string{"bridge", "firewall", "portmap"}},
		{"ptp, firewall, portmap", nil, []string{"ptp", "firewall", "portmap"}},
	} {
		h, err := b.newHost()
		if err != nil {
			return err
		}
		join := func(name string) (*nstest.Node, netip.Addr, error) { return h.addPod(name) }
		if w.plugins != nil {
			join = func(name string) (*nstest.Node, netip.Addr, error) {
				return h.plugins(name, mappings(8000+len(name)), w.plugins...)
			}
		} else if err := w.prepare(h); err != nil {
			return err
		}
		from, _, err := join("a")
		if err != nil {
			return err
		}
		on, to, err := join("bb")
		if err != nil {
			return err
		}
		add(w.name, from, on, to)
	}
	targets := []target{{beside: "bridge", rate: 1}, {beside: "ptp", rate: 1},
		{beside: "bridge, firewall, portmap", rate: 1}, {beside: "ptp, firewall, portmap", rate: 1}}
	if err := b.play(rr); err != nil {
		return err
	}
	print("Pod to pod on one host, one processor", "transactions/s", 1, rr, targets)
	if err := b.play(streams); err != nil {
		return err
	}
	targets = append(slices.Clone(targets), target{beside: "routing", rate: 1})
	print("Pod to pod on one host, one TCP stream, one processor", "MB/s", 1e6, streams, targets)
	if err := b.play(loose); err != nil {
		return err
	}
	// Which of the processors the threads get, and how the packets of two of them overtake each
	// other, is chance.
	print("Pod to pod on one host, one TCP stream, threads anywhere", "MB/s", 1e6, loose, nil)
	return nil
}

func mappings(hostPort int) []map[string]any {
	return []map[string]any{{"hostPort": hostPort, "containerPort": port, "protocol": "tcp"}}
}

// published measures a port of the host that leads to a pod, from another host.
func (b *bench) published() error {
	var variants []*variant
	for _, w := range []string{"weir, published", "weir, the pod itself", "bridge, portmap",
		"ptp, portmap"} {
		x, err := b.newHost()
		if err != nil {
			return err
		}
		y, err := b.newHost()
		if err != nil {
			return err
		}
		ours := w[:4] == "weir"
		if ours {
			if err := y.startEngine(false); err != nil {
				return err
			}
		}
		if err := b.wire(x, y); err != nil {
			return err
		}
		var on *nstest.Node
		var direct netip.Addr
		if ours {
			on, direct, err = y.addPod("c",
				pod.Publish{Proto: packet.ProtoTCP, HostPort: 8080, Port: port})
		} else {
			on, direct, err = y.plugins("c", mappings(8080), w[:len(w)-len(", portmap")], "portmap")
		}
		if err != nil {
			return err
		}
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(x.number), 2}), 8080)
		if w == "weir, the pod itself" {
			to = netip.AddrPortFrom(direct, port)
		}
		p := pair{from: x.Node, on: on, to: to, port: port, cpu: cpu}
		variants = append(variants, &variant{name: w, turn: p.requests})
	}
	if err := b.play(variants); err != nil {
		return err
	}
	print("A published port from another host, one processor", "requests/s", 1, variants,
		[]target{{beside: "weir, the pod itself", rate: 0.95}, {beside: "bridge, portmap", rate: 1},
			{beside: "ptp, portmap", rate: 1}})
	return nil
}
