// Package demo shows the main job on this machine without touching its network. There are three
// throw-away namespaces, a real HTTP server in one of them, a real node that guards it, and real
// requests from the two others.
//
//	client  eth0 ------ eth0  server  eth1 ------ eth0  scanner
//	10.77.1.2           10.77.1.1     10.77.2.1         10.77.2.2
//	fd77:1::2           fd77:1::1     fd77:2::1         fd77:2::2
//
// Everything it makes (namespaces, a directory, a bpf file system, processes) is gone when it
// returns, also after an error or an interrupt.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/examples"
	"github.com/weirnet/weir/internal/nstest"
)

// clientsRule is added while the node runs.
const clientsRule = "add 150 allow tcp from table(clients) to me 8080 setup keep-state"

// Result is what the demo saw.
type Result struct {
	Version int         `json:"version"`
	File    string      `json:"file"`  // the rule file
	Added   string      `json:"added"` // the command that was given while the node ran
	Visits  []Visit     `json:"visits"`
	Rules   []api.Rule  `json:"rules"`
	States  []api.State `json:"states"`
	// The second, the third and the fourth part.
	Containers *Containers `json:"containers"`
	TwoHosts   *TwoHosts   `json:"two_hosts"`
	Cluster    *Cluster    `json:"cluster,omitempty"` // the fourth; none without weir-store
	Wrong      []string    `json:"wrong,omitempty"`   // what did not go as the rules say
}

// Visit is one request of the demo and its result.
type Visit struct {
	Who    string `json:"who"`
	What   string `json:"what"`
	Passed bool   `json:"passed"`
	Answer string `json:"answer"`
	Rule   uint16 `json:"rule"` // the rule whose counter moved
	// After the first part: the host whose rule it is, and its text.
	Host string `json:"host,omitempty"`
	Text string `json:"text,omitempty"`
}

// testbed is everything that has to go away again.
type testbed struct {
	lab                     *nstest.Lab
	server, client, scanner *nstest.Node
	dir                     string
	unmount                 func() error
	pins                    string
	node                    *node
	sites                   []*site
	hosts                   hosts
	cluster                 clusterTestbed
}

// Run runs the demo. weir is the path of the binary that runs the nodes, weirStore that of the one
// that runs the store; without it there is no fourth part.
func Run(ctx context.Context, weir, weirStore string) (r *Result, err error) {
	s := &testbed{cluster: clusterTestbed{weir: weir, weirStore: weirStore}}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.build(); err != nil {
		return nil, err
	}
	// The testbed of the other parts is built while the first one runs.
	ctx, cancel := context.WithCancel(ctx)
	built := make(chan error, 1)
	go func() {
		err := s.hosts.build(ctx, s.lab, weir, s.dir, s.pins)
		if err == nil && weirStore != "" {
			err = s.cluster.build(ctx, s.lab, s.dir, s.pins)
		}
		built <- err
	}()
	r, err = s.first(ctx, weir)
	if err != nil {
		cancel()
	}
	err = errors.Join(err, <-built)
	defer cancel()
	if err != nil {
		return nil, err
	}
	var wrong []string
	if r.Containers, wrong, err = s.hosts.runContainers(ctx); err != nil {
		return nil, fmt.Errorf("second part: %w", err)
	}
	r.Wrong = append(r.Wrong, wrong...)
	if r.TwoHosts, wrong, err = s.hosts.runTwoHosts(ctx); err != nil {
		return nil, fmt.Errorf("third part: %w", err)
	}
	r.Wrong = append(r.Wrong, wrong...)
	if w := &r.TwoHosts.Wire; w.WireGuard == 0 || w.Readable > 0 || len(w.Others) > 0 {
		r.Wrong = append(r.Wrong, fmt.Sprintf("on the wire: %+v", *w))
	}
	if weirStore == "" {
		return r, nil
	}
	if r.Cluster, wrong, err = s.cluster.run(ctx); err != nil {
		return nil, fmt.Errorf("fourth part: %w", err)
	}
	r.Wrong = append(r.Wrong, wrong...)
	return r, nil
}

// first runs the first part.
func (s *testbed) first(ctx context.Context, weir string) (r *Result, err error) {
	if s.node, err = s.startNode(ctx, weir); err != nil {
		return nil, err
	}
	return s.run(ctx)
}

// build makes the namespaces, the wires and the servers.
func (s *testbed) build() (err error) {
	if s.lab, err = nstest.Open(); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", fmt.Sprintf("weir-%d-demo-", os.Getpid())); err != nil {
		return err
	}
	if s.pins, s.unmount, err = nstest.MountBpffs(); err != nil {
		return err
	}
	for _, n := range []struct {
		label string
		node  **nstest.Node
	}{{"server", &s.server}, {"client", &s.client}, {"scanner", &s.scanner}} {
		if *n.node, err = s.lab.AddNode(n.label); err != nil {
			return err
		}
	}
	for _, w := range []struct {
		node                     *nstest.Node
		iface, here, there, gate string
	}{
		{s.client, "eth0", "10.77.1.1/24 fd77:1::1/64", "10.77.1.2/24 fd77:1::2/64", "10.77.1.1"},
		{s.scanner, "eth1", "10.77.2.1/24 fd77:2::1/64", "10.77.2.2/24 fd77:2::2/64", "10.77.2.1"},
	} {
		here, err := nstest.Prefixes(w.here)
		if err != nil {
			return err
		}
		there, err := nstest.Prefixes(w.there)
		if err != nil {
			return err
		}
		err = s.lab.AddLink(nstest.End{Node: s.server, Iface: w.iface, Addrs: here},
			nstest.End{Node: w.node, Iface: "eth0", Addrs: there})
		if err != nil {
			return err
		}
	}
	for _, at := range []struct {
		node *nstest.Node
		port int
	}{{s.server, 80}, {s.server, 81}, {s.server, 8080}, {s.client, 80}} {
		site, err := serve(at.node, at.port)
		if err != nil {
			return err
		}
		s.sites = append(s.sites, site)
	}
	return nil
}

// startNode starts `weir up` on the server's two interfaces with the rules of examples/web.rules.
func (s *testbed) startNode(ctx context.Context, weir string) (*node, error) {
	rules := filepath.Join(s.dir, "web.rules")
	if err := os.WriteFile(rules, []byte(examples.Web), 0o600); err != nil {
		return nil, err
	}
	n, err := startNode(ctx, s.server, weir, s.dir, filepath.Join(s.pins, "weir"), rules)
	if err != nil {
		return nil, fmt.Errorf("start the node: %w", err)
	}
	for _, line := range []string{"table clients add 10.77.1.0/24 fd77:1::/64", clientsRule} {
		if err := n.do(ctx, line); err != nil {
			return n, err
		}
	}
	return n, nil
}

// close takes everything away, whatever is there.
func (s *testbed) close() error {
	var errs []error
	if s.node != nil {
		errs = append(errs, s.node.down())
	}
	errs = append(errs, s.hosts.close(), s.cluster.close())
	for _, site := range s.sites {
		errs = append(errs, site.close())
	}
	if s.lab != nil {
		errs = append(errs, s.lab.Close())
	}
	if s.unmount != nil {
		errs = append(errs, s.unmount())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
