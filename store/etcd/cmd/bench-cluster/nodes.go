package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/etcd"
)

// nodes measures what rules do to packets: hosts that enforce them in the kernel, beside all
// others.
func (b *bench) nodes() error {
	if !mayLab() {
		fmt.Println("\nHosts with kernels are not measured: that needs root and iproute2.")
		return nil
	}
	of := &bench{hosts: b.hosts, whole: min(b.whole, 20), pods: b.pods, program: b.program,
		weir: b.weir, quick: b.quick, dir: filepath.Join(b.dir, "kernels"),
		address: "10.127.1.1:7477", begin: time.Now(), worst: b.worst}
	of.begun.at = map[int64]beginning{}
	err := of.withKernels()
	b.worst = of.worst
	return err
}

func (b *bench) withKernels() (err error) {
	l, err := b.newLab()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	b.dial = l.store.DialContext
	if err := b.init(); err != nil {
		return err
	}
	stop, err := b.serveIn(l.store)
	if err != nil {
		return err
	}
	defer stop()
	d, err := etcd.Open(etcd.Config{Client: clientv3.Config{
		Endpoints: []string{etcd.EndpointIn(filepath.Join(b.dir, "store", "etcd"))}}})
	if err != nil {
		return err
	}
	defer d.Close()
	if err := b.joinKernels(l, d); err != nil {
		return err
	}
	f, err := b.newFleet(d)
	if err != nil {
		return err
	}
	last, err := b.fill(d)
	if err == nil {
		err = f.start()
	}
	if err != nil {
		return err
	}
	defer f.stop()
	if _, err := f.current(last); err != nil {
		return err
	}
	for _, h := range f.hosts[:1] { // the others continue from what it has
		h.sum = h.copy.Stored().Sum()
	}
	if err := f.startLight(); err != nil {
		return err
	}
	if err := b.settled(l); err != nil {
		return err
	}
	p := &policy{bench: b, lab: l, store: d}
	return errors.Join(p.packets(), p.trial())
}

// joinKernels starts the hosts with kernels and has them join.
func (b *bench) joinKernels(l *lab, d store.Store) error {
	for _, n := range l.nodes {
		if err := n.start(); err != nil {
			return err
		}
		token, err := b.weirStore("invite", "-role", "kernel").Output()
		if err != nil {
			return fmt.Errorf("invite: %w", err)
		}
		if _, err := n.run("join", "--name", n.name, strings.TrimSpace(string(token))); err != nil {
			return err
		}
	}
	return eventually("the hosts with kernels report", func() error {
		s, err := d.Read(context.Background(), cluster.ReportTree, 0)
		if err == nil && len(s.Entries) < len(l.nodes) {
			err = fmt.Errorf("%d do", len(s.Entries))
		}
		return err
	})
}

// settled waits until each host with a kernel has all others as its peers, and nothing to report:
// one that tries again what cannot be is not what is measured.
func (b *bench) settled(l *lab) error {
	for _, n := range l.nodes {
		err := eventually(n.name+" has all peers", func() error {
			list, err := n.run("peer", "list")
			got, want := strings.Count(list, "host:"), b.hosts+len(l.nodes)-1
			if err == nil && got != want {
				err = fmt.Errorf("%d of %d", got, want)
			}
			return err
		})
		if err != nil {
			return err
		}
		if _, err := n.run("status", "--wait", labTimeout.String()); err != nil {
			return err
		}
	}
	return nil
}

func eventually(what string, try func() error) error {
	for end := time.Now().Add(labTimeout); ; time.Sleep(10 * time.Millisecond) {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %v: %w", what, labTimeout, err)
		}
	}
}

// policy loads versions of the rules.
type policy struct {
	bench *bench
	lab   *lab
	store store.Store
}

// The ports that versions open in turns.
const firstPort, ports = 9000, 2

// rulesFor is a version of 100 rules that lets UDP to one port in. The answers belong to a flow
// that the version lets in, or do not leave. An answer that is on its way when the rule goes would
// begin a flow of its own by rule 20, and let the probes in again.
func rulesFor(port int) string {
	var t strings.Builder
	fmt.Fprintf(&t, "add 10 check-state\nadd 15 deny udp from me %d-%d to any out\n"+
		"add 20 allow ip from me to any out keep-state\nadd 30 allow icmp from any to me\n",
		firstPort, firstPort+ports-1)
	for i := range 95 {
		fmt.Fprintf(&t, "add %d deny udp from 192.0.2.%d to any\n", 100+i, i+1)
	}
	fmt.Fprintf(&t, "add 1000 allow udp from any to me %d in keep-state\n", port)
	return t.String()
}

// load loads a version and returns when that began.
func (p *policy) load(text string, try time.Duration) (*cluster.Head, time.Time, error) {
	begin := time.Now()
	h, _, err := admin.Load(context.Background(), p.store, admin.Loading{Scope: cluster.All,
		Name: "bench", Text: text, By: "bench", Trial: try,
		Parse: func(name, text string) (*rule.Ruleset, error) {
			return rule.ParseFile(name, text, new(rule.Names))
		}})
	return h, begin, err
}

// enforced waits until the hosts with kernels report a version.
func (p *policy) enforced(n cluster.Number) error {
	ctx, cancel := context.WithTimeout(context.Background(), labTimeout)
	defer cancel()
	names := make([]string, len(p.lab.nodes))
	for i, node := range p.lab.nodes {
		names[i] = node.name
	}
	o, err := admin.Await(ctx, p.store, n, names)
	if err == nil && len(o.Enforced) < len(names) {
		err = fmt.Errorf("version %v: %+v", n, o)
	}
	return err
}

// packets measures from the load of a version to the first packet that it lets in, and to the last
// answer of a flow whose rule it takes back.
func (p *policy) packets() error {
	for _, n := range p.lab.nodes {
		for i := range ports {
			if err := n.echo(firstPort + i); err != nil {
				return err
			}
		}
	}
	var opened, cut []time.Duration
	var before []*prober
	for round := range p.bench.rounds() + 1 {
		port := firstPort + round%ports
		probers, err := p.probe(port)
		if err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond) // they send, and nothing answers
		h, begin, err := p.load(rulesFor(port), 0)
		if err == nil {
			err = p.enforced(h.Number)
		}
		if err != nil {
			return err
		}
		for _, one := range probers {
			at, err := one.firstAnswer()
			if err != nil {
				return err
			}
			if round > 0 { // the first version opens a host that had no rules
				opened = append(opened, at.Sub(begin))
			}
		}
		time.Sleep(time.Until(begin.Add(time.Second)))
		for _, one := range before {
			cut = append(cut, max(0, one.stop().Sub(begin)))
		}
		before = probers
	}
	for _, one := range before {
		one.stop()
	}
	heading(fmt.Sprintf("A version of 100 rules, from its load to packets on %d hosts with kernels",
		len(p.lab.nodes)))
	p.bench.row("the first packet that it lets in, p50", percentile(opened, 0.5), 0, "ms")
	p.bench.row("p99", percentile(opened, 0.99), 300, "ms")
	p.bench.row("the last answer of a flow whose rule is gone, p50", percentile(cut, 0.5), 0, "ms")
	p.bench.row("at most", percentile(cut, 1), 500, "ms")
	return nil
}

// trial measures a host that is cut off while a version is on trial: it goes back alone, and the
// version cannot be confirmed.
func (p *policy) trial() error {
	try := 10 * time.Second
	if p.bench.quick {
		try = 4 * time.Second
	}
	const rule = "00999 allow udp from any to me 9999"
	last := p.lab.nodes[len(p.lab.nodes)-1]
	h, begin, err := p.load(rulesFor(firstPort)+"add 999 allow udp from any to me 9999\n", try)
	if err == nil {
		err = p.enforced(h.Number)
	}
	if err != nil {
		return err
	}
	link, err := p.lab.store.Netlink().LinkByName(fmt.Sprint("eth", len(p.lab.nodes)))
	if err == nil {
		err = p.lab.store.Netlink().SetLinkDown(link.Index)
	}
	if err != nil {
		return err
	}
	time.Sleep(time.Until(begin.Add(try * 8 / 10))) // the others have reported again
	_, _, err = admin.Confirm(context.Background(), p.store, "bench", admin.Signer{},
		admin.Without{})
	if err == nil || !strings.HasSuffix(err.Error(), ": "+last.name) {
		return fmt.Errorf("confirm with %s cut off: %v", last.name, err)
	}
	list, err := last.run("fw", "list")
	if err != nil || !strings.Contains(list, rule) {
		return fmt.Errorf("%s went back before the end of the trial: %v\n%s", last.name, err, list)
	}
	err = eventually("the host that is cut off goes back", func() error {
		list, err := last.run("fw", "list")
		if err == nil && strings.Contains(list, rule) {
			err = errors.New("it has not")
		}
		return err
	})
	back := time.Since(begin) - try
	if err != nil {
		return err
	}
	heading(fmt.Sprintf("A trial of %v that cuts off 1 of %d hosts", try,
		p.bench.hosts+len(p.lab.nodes)))
	p.bench.row("it is back, after the end of the trial", float64(back)/1e6, 1000, "ms")
	fmt.Println("\n`fw confirm` refused, and named it.")
	return nil
}

// echo answers UDP at a port of a host.
func (n *kernelNode) echo(port int) error {
	conn, err := n.node.ListenPacket("udp4", fmt.Sprintf("%v:%d", n.addr, port))
	if err != nil {
		return err
	}
	go func() { // it ends with the process
		b := make([]byte, 64)
		for {
			size, from, err := conn.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = conn.WriteTo(b[:size], from) // a refusal is what is measured
			}
		}
	}()
	return nil
}
