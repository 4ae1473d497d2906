package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/pod"
)

// clusterTestbed is the testbed of the fourth part: three hosts, of which one has the store.
//
//	web, job === web1  eth1 ------ eth1  db1 === db
//	                eth0 \        / eth0
//	                 eth0 \      / eth1
//	                        hub
type clusterTestbed struct {
	weir, weirStore string // programs

	dir           string
	hub, web1, db *member
	web, job, sql *nstest.Node // containers
	store         *nstest.Cmd
	ended         chan error // of the store
	sites         []*site
}

// member is a host of the cluster.
type member struct {
	name  string
	where *nstest.Node
	root  string
	node  *node
}

// storeAt is where the hosts reach the store.
const storeAt = "10.66.0.1"

// build makes the namespaces and starts the nodes, without rules.
func (s *clusterTestbed) build(ctx context.Context, lab *nstest.Lab, dir, pins string) (err error) {
	s.dir = dir
	s.hub, s.web1, s.db = &member{name: "hub"}, &member{name: "web1"}, &member{name: "db1"}
	for label, n := range map[string]**nstest.Node{"hub": &s.hub.where, "web1": &s.web1.where,
		"db1": &s.db.where, "web": &s.web, "job": &s.job, "db": &s.sql} {
		if *n, err = lab.AddNode(label); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		a, b             *member
		aIface, bIface   string
		aPrefix, bPrefix string
	}{
		{s.hub, s.web1, "eth0", "eth0", storeAt + "/26", "10.66.0.2/26"},
		{s.hub, s.db, "eth1", "eth0", "10.66.0.65/26", "10.66.0.66/26"},
		{s.web1, s.db, "eth1", "eth1", "10.66.0.129/26", "10.66.0.130/26"},
	} {
		err := lab.AddLink(nstest.End{Node: l.a.where, Iface: l.aIface,
			Addrs: []netip.Prefix{netip.MustParsePrefix(l.aPrefix)}},
			nstest.End{Node: l.b.where, Iface: l.bIface,
				Addrs: []netip.Prefix{netip.MustParsePrefix(l.bPrefix)}})
		if err != nil {
			return err
		}
	}
	if err := s.db.where.AddRoute(netip.MustParsePrefix(storeAt+"/32"),
		netip.MustParseAddr("10.66.0.65")); err != nil {
		return err
	}
	for _, m := range []*member{s.hub, s.web1, s.db} {
		m.root = filepath.Join(dir, m.name)
		if m.node, err = startNode(ctx, m.where, s.weir, m.root, filepath.Join(pins, m.name),
			""); err != nil {
			return fmt.Errorf("start the node of %s: %w", m.name, err)
		}
	}
	return nil
}

// startStore runs weir-store until close.
func (s *clusterTestbed) startStore() error {
	s.store = s.hub.where.Command(s.weirStore, "serve", "-dir",
		filepath.Join(s.hub.root, "var/lib/weir-store"))
	s.store.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.store.Start(); err != nil {
		s.store = nil
		return err
	}
	s.ended = make(chan error, 1)
	go func() { s.ended <- s.store.Wait() }()
	return nil
}

// Command is one that an administrator gives, and what it prints.
type Command struct {
	Host    string `json:"host"`
	Command string `json:"command"`
	Printed string `json:"printed"`
	failed  bool
}

// do gives a command on a host. shown is what stands for it; "" for its words.
func (s *clusterTestbed) do(ctx context.Context, m *member, shown string, args ...string) (Command,
	error) {
	c := Command{Host: m.name, Command: shown}
	if shown == "" {
		c.Command = "weir " + strings.Join(args, " ")
	}
	run := m.where.CommandContext(ctx, s.weir, append(args, "--root", m.root)...)
	run.Dir = s.dir
	var printed bytes.Buffer
	run.Stdout, run.Stderr = &printed, &printed
	err := run.Run()
	c.Printed, c.failed = strings.TrimRight(printed.String(), "\n"), err != nil
	return c, err
}

// attach gives a container its network, and a server if a port is given. It returns its address.
func (s *clusterTestbed) attach(ctx context.Context, m *member, who *nstest.Node,
	labels map[string]string, port int) (netip.Addr, error) {
	a := pod.Spec{Container: who.Name(), Name: who.String(), Netns: who.Path(), Labels: labels}
	var p api.Pod
	if err := m.node.client.Post(ctx, "/v1/pods", a, &p); err != nil {
		return netip.Addr{}, fmt.Errorf("attach %s: %w", who, err)
	}
	if port != 0 {
		site, err := serve(who, port)
		if err != nil {
			return netip.Addr{}, err
		}
		s.sites = append(s.sites, site)
	}
	return p.Addrs[0], nil
}

// until waits until a condition holds.
func until(ctx context.Context, what string, holds func() (bool, error)) error {
	for deadline := time.Now().Add(waitTimeout); ; {
		ok, err := holds()
		if err != nil || ok {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not in time: %s", what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// follows waits until the node of a host follows the store.
func (m *member) follows(ctx context.Context) error {
	return until(ctx, m.name+" follows the store", func() (bool, error) {
		var now api.Status
		err := m.node.client.Get(ctx, "/v1/status", &now)
		if errors.Is(err, api.ErrNoNode) {
			return false, nil // it begins again
		}
		return err == nil && now.Cluster != nil && now.Cluster.Connected && now.Pods, err
	})
}

// write writes a rule file where commands are given.
func (s *clusterTestbed) write(name, text string) error {
	return os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600)
}

// close takes the nodes and the store down; the namespaces are the lab's.
func (s *clusterTestbed) close() error {
	var errs []error
	for _, m := range []*member{s.hub, s.web1, s.db} {
		if m != nil && m.node != nil {
			errs = append(errs, m.node.down())
		}
	}
	if s.store != nil {
		if err := s.store.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
		<-s.ended
	}
	for _, site := range s.sites {
		errs = append(errs, site.close())
	}
	return errors.Join(errs...)
}
