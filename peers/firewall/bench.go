package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// bench is a server behind a firewall and a client, joined by a pair of veths.
type bench struct {
	lab            *nstest.Lab
	server, client *nstest.Node
	index          uint32 // of the server's interface
	from, to       net.HardwareAddr
	engine         *kernel.Engine
	program        *program.Program // that is in force
	nginx          int              // the master's process id
	softirqd       int              // that of the kernel's thread for packets on the server's CPU
}

const serverAddr = "10.99.255.1"

func newBench() (*bench, error) {
	lab, err := nstest.Open()
	if err != nil {
		return nil, err
	}
	b := &bench{lab: lab}
	if err := b.setUp(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) setUp() (err error) {
	if b.softirqd, err = softirqdOf(serverCPU); err != nil {
		return err
	}
	if b.server, err = b.lab.AddNode("server"); err != nil {
		return err
	}
	if b.client, err = b.lab.AddNode("client"); err != nil {
		return err
	}
	there, err := nstest.Prefixes(serverAddr + "/16")
	if err != nil {
		return err
	}
	here, err := nstest.Prefixes("10.99.0.1/16")
	if err != nil {
		return err
	}
	for i := range clientAddrs {
		here = append(here, netip.PrefixFrom(clientAddr(i), 16))
	}
	if err := b.lab.AddLink(nstest.End{Node: b.server, Iface: "eth0", Addrs: there},
		nstest.End{Node: b.client, Iface: "eth0", Addrs: here}); err != nil {
		return err
	}
	for _, n := range []*nstest.Node{b.server, b.client} {
		if err := errors.Join(n.SetSysctl("net.ipv4.ip_local_port_range", "1024 65535"),
			n.SetSysctl("net.ipv4.tcp_tw_reuse", "1")); err != nil {
			return err
		}
	}
	if err := b.server.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		b.index, b.to = uint32(i.Index), i.HardwareAddr
		return err
	}); err != nil {
		return err
	}
	if err := b.client.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		b.from = i.HardwareAddr
		return err
	}); err != nil {
		return err
	}
	return b.open(firewall.DefaultOptions())
}

// open gives the bench a fresh engine.
func (b *bench) open(o firewall.Options) error {
	if b.engine != nil {
		if err := b.engine.Close(); err != nil {
			return err
		}
	}
	prefixes, err := nstest.Prefixes(serverAddr + "/16")
	if err != nil {
		return err
	}
	return b.server.Do(func() error {
		if b.engine, err = kernel.Open(kernel.Config{Options: o}); err != nil {
			return err
		}
		return b.engine.SetInterfaces([]firewall.Interface{{Index: b.index, Name: "eth0",
			Addrs: prefixes}})
	})
}

func (b *bench) close() error {
	var err error
	if b.engine != nil {
		err = b.engine.Close()
	}
	return errors.Join(err, b.lab.Close())
}

// load puts rules in force.
func (b *bench) load(rules string) error {
	p, err := compile(rules)
	if err != nil {
		return err
	}
	b.program = p
	return b.engine.Load(p)
}

func compile(rules string) (*program.Program, error) {
	set, err := rule.ParseFile("rules", rules, nil)
	if err != nil {
		return nil, err
	}
	return rule.Compile(set, rule.CompileOptions{Strict: true})
}

// mode is a contender: how to install it in front of the server, and how to remove it.
type mode struct {
	name    string
	on, off func() error
}

func (b *bench) none() mode {
	nothing := func() error { return nil }
	return mode{"none", nothing, nothing}
}

func (b *bench) weir() mode {
	return mode{"weir",
		func() error {
			return b.server.Do(func() error { _, err := b.engine.Attach(b.index); return err })
		},
		func() error {
			if err := b.server.Do(func() error { return b.engine.Detach(b.index) }); err != nil {
				return err
			}
			_, err := b.engine.DeleteStates(func(firewall.State) bool { return true })
			return err
		}}
}

// weirAdopting is weir that knows the connections which are open when it comes: nft takes them for
// new ones, and it is not measured whether a new connection passes.
func (b *bench) weirAdopting() mode {
	m := b.weir()
	adopt := func() error {
		// The clients' side: the server's has all that it has not forgotten yet, too.
		sockets, err := nl.TCPSockets(b.client.NS())
		if err != nil {
			return err
		}
		web := b.program.Rules[slices.IndexFunc(b.program.Rules, func(r program.Rule) bool {
			return r.State == op.StateKeep
		})]
		var states []firewall.State
		for _, s := range sockets {
			if s.Remote.Port() == 80 {
				states = append(states, firewall.State{Proto: packet.ProtoTCP, From: s.Local,
					To: s.Remote, Key: web.Key, Rule: web.Number})
			}
		}
		_, err = b.engine.Adopt(states)
		return err
	}
	return mode{m.name, func() error { return errors.Join(adopt(), m.on(), adopt()) }, m.off}
}

// nft puts an nft rule set in place by one transaction.
func (b *bench) nft(name, rules string) mode {
	return mode{name,
		func() error { return b.runNFT("flush ruleset\n" + rules) },
		func() error {
			return errors.Join(b.runNFT("flush ruleset\n"),
				b.server.Do(flushConntrack))
		}}
}

func (b *bench) runNFT(text string) error {
	c := b.server.Command("nft", "-f", "-")
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %.300s", err, out)
	}
	return nil
}

// cycles gives each contender a segment per cycle, in random order, and returns what measure said,
// by contender.
func cycles(n int, modes []mode, measure func() (float64, error)) (map[string][]float64, error) {
	out := map[string][]float64{}
	for range n {
		for _, i := range rand.Perm(len(modes)) {
			m := modes[i]
			if err := m.on(); err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			v, err := measure()
			if err := errors.Join(err, m.off()); err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			out[m.name] = append(out[m.name], v)
		}
	}
	return out, nil
}

// spread is a median with its quartiles.
type spread struct{ low, mid, high float64 }

func (s spread) String() string { return fmt.Sprintf("%.3g [%.3g, %.3g]", s.mid, s.low, s.high) }

func spreadOf(values []float64) spread {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return spread{v[n/4], v[n/2], v[n*3/4]}
}

// ratios divides two rows cycle by cycle.
func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

// shareOf is the cost of a over base divided by that of b over base. Minima are taken: what the
// machine's other work adds is always more.
func shareOf(a, b, base []float64) float64 {
	return (slices.Min(a) - slices.Min(base)) / (slices.Min(b) - slices.Min(base))
}

// progress tells on standard error how far the run is.
func progress(what string) { fmt.Fprintln(os.Stderr, "measuring:", what) }
