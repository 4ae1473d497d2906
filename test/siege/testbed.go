package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/weirnet/weir/internal/nstest"
)

// Addresses of every testbed.
const (
	hostAddr    = "10.66.0.1"
	outsideAddr = "10.66.0.2" // where attackers that are real live
	userAddr    = "10.66.0.3" // where legitimate users live
	webAddr     = "10.88.0.2"
	clientAddr  = "10.88.0.3"
)

// Ports of the services.
const (
	echoPort      = 80   // TCP, on the host and in the pod web: sends back what it gets
	answerPort    = 53   // UDP: sends back what it gets
	silentPort    = 5353 // UDP: never answers
	publishedPort = 8080 // TCP and UDP, on the host: the pod's echoPort and answerPort
	publishedDNS  = 8053
)

// testbed is a host with a neighbour and two pods.
type testbed struct {
	lab           *nstest.Lab
	outside, host *nstest.Node
	web, client   *nstest.Node // pods
	hostMAC       net.HardwareAddr
	agentNode     *agentNode // nil without Weir
	services      *services
	dir           string
}

// newTestbed makes the namespaces, with the services but without a firewall.
func newTestbed() (w *testbed, err error) {
	w = &testbed{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.lab, err = nstest.Open(); err != nil {
		return w, err
	}
	if w.dir, err = os.MkdirTemp("", fmt.Sprintf("weir-%d-siege-", os.Getpid())); err != nil {
		return w, err
	}
	for _, n := range []struct {
		label string
		node  **nstest.Node
	}{{"outside", &w.outside}, {"host", &w.host}, {"web", &w.web}, {"client", &w.client}} {
		if *n.node, err = w.lab.AddNode(n.label); err != nil {
			return w, err
		}
	}
	if err := w.join(w.outside, "10.66.0.2/24 10.66.0.3/24", w.host, "eth0",
		"10.66.0.1/24"); err != nil {
		return w, err
	}
	if err := w.sysctls(); err != nil {
		return w, err
	}
	// What goes to spoofed sources leaves the host and ends outside.
	if err := w.host.AddRoute(netip.MustParsePrefix("0.0.0.0/0"),
		netip.MustParseAddr(outsideAddr)); err != nil {
		return w, err
	}
	return w, w.host.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			w.hostMAC = i.HardwareAddr
		}
		return err
	})
}

// join links eth0 of a node with an interface of another.
func (w *testbed) join(a *nstest.Node, here string, b *nstest.Node, iface, there string) error {
	ours, err := nstest.Prefixes(here)
	if err != nil {
		return err
	}
	theirs, err := nstest.Prefixes(there)
	if err != nil {
		return err
	}
	return w.lab.AddLink(nstest.End{Node: a, Iface: "eth0", Addrs: ours},
		nstest.End{Node: b, Iface: iface, Addrs: theirs})
}

// sysctls lets the host answer sources that no host has, as on the Internet, and lets clients use
// their ports again after a second.
func (w *testbed) sysctls() error {
	for _, s := range []struct {
		node       *nstest.Node
		key, value string
	}{
		{w.host, "net.ipv4.conf.all.rp_filter", "0"},
		{w.host, "net.ipv4.conf.eth0.rp_filter", "0"},
		{w.host, "net.ipv4.tcp_max_syn_backlog", "4096"},
		{w.outside, "net.ipv4.tcp_tw_reuse", "1"},
		{w.outside, "net.ipv4.ip_local_port_range", "20000 60999"},
		{w.client, "net.ipv4.tcp_tw_reuse", "1"},
		{w.client, "net.ipv4.ip_local_port_range", "20000 60999"},
		{w.host, "net.ipv4.tcp_tw_reuse", "1"},
	} {
		if err := s.node.SetSysctl(s.key, s.value); err != nil {
			return fmt.Errorf("%s of %s: %w", s.key, s.node, err)
		}
	}
	return nil
}

func (w *testbed) close() error {
	var errs []error
	if w.services != nil {
		w.services.close()
	}
	if w.agentNode != nil {
		errs = append(errs, w.agentNode.close())
	}
	if w.lab != nil {
		errs = append(errs, w.lab.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// contender is what stands between the host and the outside.
type contender struct {
	name string
	// raise puts the firewall up and gives the pods their networks.
	raise func(w *testbed, s *scenario) error
	pods  bool // they have networks, published ports and masquerade
}

// weirSettings leave port 53 of the host to what it serves itself.
const weirSettings = `
interfaces = ["eth0"]
[pods]
ranges = ["10.88.0.0/24"]
dns = false
`

const weirRules = `
add 10 check-state
add 100 allow tcp from any to me 80 in recv eth0 setup keep-state
add 110 allow udp from any to me 53,5353 in recv eth0 keep-state
add 120 allow sctp from any to me in recv eth0 keep-state
add 130 allow tcp from any to table(app=web) 80 setup keep-state
add 140 allow udp from any to table(app=web) 53 keep-state
add 150 allow ip from me to any keep-state
add 160 allow ip from table(role=client) to any keep-state
`

// raiseWeir starts Weir and attaches the pods.
func (c config) raiseWeir(w *testbed, s *scenario) (err error) {
	if w.agentNode, err = newAgentNode(c.weir, w.host, w.dir); err != nil {
		return err
	}
	if err := w.agentNode.write("etc/weir/weir.toml", weirSettings+s.settings); err != nil {
		return err
	}
	rules := weirRules
	if s.rules != "" {
		rules = s.rules
	}
	if err := w.agentNode.write("etc/weir/rules", rules); err != nil {
		return err
	}
	if err := w.agentNode.start(); err != nil {
		return err
	}
	err = w.agentNode.attach(w.web, "--label", "app=web", "--addr", webAddr,
		"--publish", "8080:80", "--publish", "8053:53/udp")
	if err != nil {
		return err
	}
	return w.agentNode.attach(w.client, "--label", "role=client", "--addr", clientAddr)
}

const nftRules = `
table ip f {
	chain input {
		type filter hook input priority 0; policy drop;
		ct state established,related accept
		iifname "eth0" tcp dport 80 ct state new accept
		iifname "eth0" udp dport { 53, 5353 } accept
		iifname "eth0" meta l4proto sctp accept
	}
	chain forward {
		type filter hook forward priority 0; policy drop;
		ct state established,related accept
		iifname "client" accept
		ip daddr 10.88.0.2 tcp dport 80 ct state new accept
		ip daddr 10.88.0.2 udp dport 53 accept
	}
	chain prerouting {
		type nat hook prerouting priority -100;
		iifname "eth0" tcp dport 8080 dnat to 10.88.0.2:80
		iifname "eth0" udp dport 8053 dnat to 10.88.0.2:53
	}
	chain postrouting {
		type nat hook postrouting priority 100;
		oifname "eth0" ip saddr 10.88.0.0/24 masquerade
	}
}
`

// raiseNft routes to the pods, filters and translates by nft.
func raiseNft(w *testbed, _ *scenario) error {
	for _, p := range []struct {
		node *nstest.Node
		addr string
	}{{w.web, webAddr}, {w.client, clientAddr}} {
		if err := w.join(p.node, p.addr+"/32", w.host, p.node.String(),
			"10.88.0.1/32"); err != nil {
			return err
		}
		for _, c := range []struct {
			node *nstest.Node
			args string
		}{
			{w.host, "route add " + p.addr + " dev " + p.node.String()},
			{p.node, "route add 10.88.0.1 dev eth0"},
			{p.node, "route add default via 10.88.0.1 dev eth0"},
		} {
			if out, err := c.node.Command("ip",
				strings.Fields(c.args)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", c.args, err, out)
			}
		}
	}
	if err := w.host.SetSysctl("net.ipv4.ip_forward", "1"); err != nil {
		return err
	}
	cmd := w.host.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(nftRules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}
