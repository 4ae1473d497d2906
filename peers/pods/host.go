package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/pod"
	"github.com/weirnet/weir/rule"
)

// host is a node with pods.
type host struct {
	*nstest.Node
	b      *bench
	number int
	pods   *pod.Manager
	engine *kernel.Engine // nil: plain routing
}

// routed carries pods by the kernel's routing alone.
type routed struct{}

func (routed) SetEndpoint(forward.Endpoint) error             { return nil }
func (routed) DeleteEndpoint(uint32) error                    { return nil }
func (routed) Endpoints() ([]forward.EndpointCounters, error) { return nil, nil }
func (routed) SetPublished([]forward.Published) error         { return nil }
func (routed) SetMasquerade(forward.Masquerade) error         { return nil }

var hosts int

// newHost makes a node with ip_forward on. Its pods live in 10.N.0.0/24.
func (b *bench) newHost() (*host, error) {
	hosts++
	n, err := b.lab.AddNode(fmt.Sprint("host", hosts))
	if err != nil {
		return nil, err
	}
	return &host{Node: n, b: b, number: hosts}, n.SetSysctl("net.ipv4.ip_forward", "1")
}

func (h *host) podRange() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(h.number), 0, 0}), 24)
}

// startEngine starts Weir's engine on the host; to be called before it has pods.
func (h *host) startEngine(noPeer bool) (err error) {
	return h.Do(func() error {
		if h.engine, err = kernel.Open(kernel.Config{Options: firewall.DefaultOptions(),
			NoRedirectPeer: noPeer}); err != nil {
			return err
		}
		h.b.undo = append(h.b.undo, h.engine.Close)
		set, err := rule.ParseFile("rules", rules(), nil)
		if err != nil {
			return err
		}
		p, err := rule.Compile(set, rule.CompileOptions{Strict: true})
		if err != nil {
			return err
		}
		return h.engine.Load(p)
	})
}

// rules are a hundred that do not match, behind check-state and before one that allows and keeps a
// state.
func rules() string {
	var text strings.Builder
	text.WriteString("add 1 check-state\n")
	for i := range 100 {
		fmt.Fprintf(&text, "add deny tcp from 172.16.%d.0/24 to any %d\n", i, 1000+i)
	}
	text.WriteString("add allow ip from any to any keep-state\n")
	return text.String()
}

// filter gives plain routing the same rules in nftables.
func (h *host) filter() error {
	var text strings.Builder
	text.WriteString("table inet bench {\n chain forward {\n" +
		"  type filter hook forward priority 0; policy drop;\n" +
		"  ct state established,related accept\n")
	for i := range 100 {
		fmt.Fprintf(&text, "  ip saddr 172.16.%d.0/24 tcp dport %d drop\n", i, 1000+i)
	}
	text.WriteString("  accept\n }\n}\n")
	c := h.Command("nft", "-f", "-")
	c.Stdin = strings.NewReader(text.String())
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

// wire connects two hosts by their network cards and gives each the routes to the other's pods.
func (b *bench) wire(x, y *host) error {
	ax, ay := netip.AddrFrom4([4]byte{192, 168, byte(x.number), 1}),
		netip.AddrFrom4([4]byte{192, 168, byte(x.number), 2})
	err := b.lab.AddLink(nstest.End{Node: x.Node, Iface: "eth0",
		Addrs: []netip.Prefix{netip.PrefixFrom(ax, 24)}},
		nstest.End{Node: y.Node, Iface: "eth0", Addrs: []netip.Prefix{netip.PrefixFrom(ay, 24)}})
	if err != nil {
		return err
	}
	for _, end := range []struct {
		h, o    *host
		at, via netip.Addr
	}{{x, y, ax, ay}, {y, x, ay, ax}} {
		if err := end.h.AddRoute(end.o.podRange(), end.via); err != nil {
			return err
		}
		if end.h.engine == nil {
			continue
		}
		err := end.h.Do(func() error {
			i, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			ifs := []firewall.Interface{{Index: uint32(i.Index), Name: "eth0",
				Addrs: []netip.Prefix{netip.PrefixFrom(end.at, 24)}}}
			if err := end.h.engine.SetInterfaces(ifs); err != nil {
				return err
			}
			_, err = end.h.engine.Attach(uint32(i.Index))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addPod attaches a pod and returns it with its address.
func (h *host) addPod(name string, publish ...pod.Publish) (*nstest.Node, netip.Addr, error) {
	n, err := h.b.lab.AddNode(fmt.Sprintf("%s-%d", name, h.number))
	if err != nil {
		return nil, netip.Addr{}, err
	}
	var p pod.Pod
	err = h.Do(func() (err error) {
		if h.pods == nil {
			var f forward.Forwarder = routed{}
			if h.engine != nil {
				f = h.engine
			}
			h.pods, err = pod.New(pod.Config{Dir: filepath.Join(h.b.dir, fmt.Sprint(h.number)),
				Ranges: []netip.Prefix{h.podRange()}}, f)
			if err != nil {
				return err
			}
			h.b.undo = append(h.b.undo, func() error { h.pods.Close(); return nil })
		}
		p, _, err = h.pods.Attach(context.Background(),
			pod.Spec{Container: name, Netns: n.Path(), Publish: publish})
		return err
	})
	if err != nil {
		return nil, netip.Addr{}, err
	}
	return n, p.Addrs[0], nil
}

// spread has the kernel take what arrives at a node's eth0 to another processor (RPS).
func spread(n *nstest.Node, mask string) error {
	out, err := n.Command("ip", "netns", "exec", n.Name(), "sh", "-c", "echo "+mask+
		" > /sys/class/net/eth0/queues/rx-0/rps_cpus").CombinedOutput()
	if err != nil {
		return fmt.Errorf("rps_cpus: %w: %s", err, out)
	}
	return nil
}
