package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/examples"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/pod"
)

// hosts are the second and the third part: two hosts with containers.
//
//	web      10.88.1.2 fd00:88:1::2 ===
//	client   10.88.1.3 fd00:88:1::3 === left  eth0 --- eth0  right === shop 10.88.2.2 fd00:88:2::2
//	job      10.88.1.4 fd00:88:1::4 ===    10.78.0.1    10.78.0.2
type hosts struct {
	left, right            *nstest.Node
	web, client, job, shop *nstest.Node
	sites                  []*site
	leftNode, rightNode    *node
}

// build makes the namespaces and starts both nodes.
func (h *hosts) build(ctx context.Context, lab *nstest.Lab, weir, dir, pins string) (err error) {
	for _, n := range []struct {
		label string
		node  **nstest.Node
	}{{"left", &h.left}, {"right", &h.right}, {"web", &h.web}, {"client", &h.client},
		{"job", &h.job}, {"shop", &h.shop}} {
		if *n.node, err = lab.AddNode(n.label); err != nil {
			return err
		}
	}
	err = lab.AddLink(nstest.End{Node: h.left, Iface: "eth0",
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.78.0.1/24")}},
		nstest.End{Node: h.right, Iface: "eth0",
			Addrs: []netip.Prefix{netip.MustParsePrefix("10.78.0.2/24")}})
	if err != nil {
		return err
	}
	if h.leftNode, err = startHost(ctx, h.left, weir, filepath.Join(dir, "left"),
		filepath.Join(pins, "left"), 1, examples.Left); err != nil {
		return fmt.Errorf("start the left node: %w", err)
	}
	if h.rightNode, err = startHost(ctx, h.right, weir, filepath.Join(dir, "right"),
		filepath.Join(pins, "right"), 2, examples.Right); err != nil {
		return fmt.Errorf("start the right node: %w", err)
	}
	return nil
}

// hostSettings are three lines: the containers' ranges, and a tunnel.
const hostSettings = "[pods]\nranges = [\"10.88.%[1]d.0/24\", \"fd00:88:%[1]d::/120\"]\n[overlay]\n"

func startHost(ctx context.Context, where *nstest.Node, weir, root, pins string, number int,
	rules string) (*node, error) {
	etc := filepath.Join(root, "etc", "weir")
	if err := os.MkdirAll(etc, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(etc, "rules")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(etc, "weir.toml"), fmt.Appendf(nil, hostSettings, number),
		0o600); err != nil {
		return nil, err
	}
	return startNode(ctx, where, weir, root, pins, file)
}

// attach gives a container its network, as `weir pod attach` does, and a web server.
func (h *hosts) attach(ctx context.Context, at *node, who *nstest.Node, label, value string,
	ports ...int) error {
	a := pod.Spec{Container: who.Name(), Name: who.String(), Netns: who.Path(),
		Labels: map[string]string{}}
	if label != "" {
		a.Labels[label] = value
	}
	var p api.Pod
	if err := at.client.Post(ctx, "/v1/pods", a, &p); err != nil {
		return fmt.Errorf("attach %s: %w", who, err)
	}
	for _, port := range ports {
		s, err := serve(who, port)
		if err != nil {
			return err
		}
		h.sites = append(h.sites, s)
	}
	return nil
}

// visits makes visits one after the other and records which rule of which host decided.
func (h *hosts) visits(ctx context.Context, plans []plan) (all []Visit, wrong []string, err error) {
	for _, p := range plans {
		by, host := h.leftNode, "left"
		if p.right {
			by, host = h.rightNode, "right"
		}
		v, err := visitBy(ctx, by, host, p, wireRules)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, v)
		if v.Passed != p.pass {
			wrong = append(wrong, fmt.Sprintf("%s: %s: %s", v.Who, v.What, v.Answer))
		}
	}
	return all, wrong, nil
}

// visitBy makes a visit and records which rule of a host decided, which is none of beside.
func visitBy(ctx context.Context, by *node, host string, p plan, beside []uint16) (Visit, error) {
	before, err := by.rules(ctx)
	if err != nil {
		return Visit{}, err
	}
	v := visit(ctx, p)
	after, err := by.rules(ctx)
	if err != nil {
		return v, err
	}
	v.Host, v.Rule = host, moved(before, after, v.Passed, beside)
	for _, r := range after {
		if r.Number == v.Rule {
			v.Text = r.Text
		}
	}
	return v, nil
}

// Containers is what the second part saw.
type Containers struct {
	File   string    `json:"file"` // the rules of the left host
	Pods   []api.Pod `json:"pods"`
	Visits []Visit   `json:"visits"`
}

// runContainers is the second part: containers on one host, named by their labels.
func (h *hosts) runContainers(ctx context.Context) (c *Containers, wrong []string, err error) {
	err = errors.Join(h.attach(ctx, h.leftNode, h.web, "app", "web", 80, 81),
		h.attach(ctx, h.leftNode, h.client, "role", "client"),
		h.attach(ctx, h.leftNode, h.job, "", ""))
	if err != nil {
		return nil, nil, err
	}
	c = &Containers{File: examples.Left}
	c.Visits, wrong, err = h.visits(ctx, []plan{
		{from: h.client, host: "10.88.1.2", port: 80, pass: true},
		{from: h.client, host: "[fd00:88:1::2]", port: 80, pass: true},
		{from: h.client, host: "10.88.1.2", port: 81},
		{from: h.job, host: "10.88.1.2", port: 80},
	})
	if err != nil {
		return nil, nil, err
	}
	// The pod job comes again, as a client: the table of that label has it at once.
	var done api.Done
	if err := h.leftNode.client.Post(ctx, "/v1/pods/detach",
		api.Detach{Container: h.job.Name()}, &done); err != nil {
		return nil, nil, err
	}
	if err := h.attach(ctx, h.leftNode, h.job, "role", "client"); err != nil {
		return nil, nil, err
	}
	again, more, err := h.visits(ctx,
		[]plan{{from: h.job, as: "job, now role=client", host: "10.88.1.2", port: 80,
			pass: true}})
	if err != nil {
		return nil, nil, err
	}
	c.Visits, wrong = append(c.Visits, again...), append(wrong, more...)
	var pods api.Pods
	err = h.leftNode.client.Get(ctx, "/v1/pods", &pods)
	c.Pods = pods.Pods
	return c, wrong, err
}

// TwoHosts is what the third part saw.
type TwoHosts struct {
	File   string     `json:"file"` // the rules of the right host
	Visits []Visit    `json:"visits"`
	Peers  []api.Peer `json:"peers"` // of the left host
	Wire   Wire       `json:"wire"`
}

// runTwoHosts is the third part: the client of one host and the shop of the other, and what the
// wire between them sees.
func (h *hosts) runTwoHosts(ctx context.Context) (r *TwoHosts, wrong []string, err error) {
	if err := h.attach(ctx, h.rightNode, h.shop, "app", "shop", 80, 81); err != nil {
		return nil, nil, err
	}
	sniff, err := listenToWire(h.right, "eth0")
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		wire := sniff.end()
		if r != nil {
			r.Wire = wire
		}
	}()
	if err := h.meet(ctx); err != nil {
		return nil, nil, err
	}
	r = &TwoHosts{File: examples.Right}
	r.Visits, wrong, err = h.visits(ctx, []plan{
		{from: h.client, host: "10.88.2.2", port: 80, pass: true},
		{from: h.client, host: "[fd00:88:2::2]", port: 80, pass: true},
		{from: h.client, host: "10.88.2.2", port: 81, right: true},
		{from: h.web, host: "10.88.2.2", port: 80},
	})
	if err != nil {
		return nil, nil, err
	}
	r.Peers, err = h.leftNode.peers(ctx)
	return r, wrong, err
}

// meet makes both nodes know each other, and waits until they have agreed on keys.
func (h *hosts) meet(ctx context.Context) error {
	for _, one := range []struct {
		at, other        *node
		name, where, pod string
	}{{h.leftNode, h.rightNode, "right", "10.78.0.2:51820", "2"},
		{h.rightNode, h.leftNode, "left", "10.78.0.1:51820", "1"}} {
		var key api.PeerKey
		if err := one.other.client.Post(ctx, "/v1/peers/key", nil, &key); err != nil {
			return err
		}
		add := api.AddPeer{Name: one.name, Key: key.Key, Endpoints: []string{one.where},
			Pods: key.Pods, Keepalive: 25}
		var done api.Done
		if err := one.at.client.Post(ctx, "/v1/peers", add, &done); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(waitTimeout); ; {
		list, err := h.leftNode.peers(ctx)
		if err != nil {
			return err
		}
		if len(list) == 1 && list[0].Handshake != nil {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("the two hosts have made no handshake in time")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// close takes the nodes down; the namespaces are the lab's.
func (h *hosts) close() error {
	var errs []error
	for _, n := range []*node{h.leftNode, h.rightNode} {
		if n != nil {
			errs = append(errs, n.down())
		}
	}
	for _, s := range h.sites {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}
