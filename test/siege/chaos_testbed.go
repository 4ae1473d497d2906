package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

// chaos is a host under disturbances: the testbed of the siege, with another card to a second Weir
// that is a peer. Its state directory is on a small file system of its own, and pods come and go.
type chaos struct {
	*testbed
	config  config
	peer    *testbed // its host has the tunnel's other end
	streams []*stream
	probes  []probe
	over    chan struct{}
	probed  atomic.Int64
	passed  passes
	churned int
}

const chaosSettings = `
interfaces = ["eth0", "eth1"]
[pods]
ranges = ["10.88.0.0/24"]
dns = false
[overlay]
[observe]
history = "1m"
metrics = "` + metricsAt + `"
`

// metricsAt is where the host serves its metrics.
const metricsAt = "127.0.0.1:9642"

const peerSettings = `
interfaces = ["eth0"]
[pods]
ranges = ["10.89.0.0/24"]
dns = false
[overlay]
`

const chaosRules = restartRules + `
add 300 allow udp from any to any 51820
add 310 allow tcp from table(role=client) to 10.89.0.2 80 setup keep-state
add 320 allow tcp from any to any 80 via weir0 setup keep-state
table guests create
`

const peerRules = `
add 10 check-state
add 300 allow udp from any to any 51820
add 320 allow tcp from 10.88.0.0/24 to any 80 setup keep-state
`

// stateSize is the size of the file system of the state: a few files fill it.
const stateSize = "4m"

func newChaos(c config) (x *chaos, err error) {
	x = &chaos{config: c, over: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.close())
		}
	}()
	if x.testbed, err = newTestbed(); err != nil {
		return x, err
	}
	state := filepath.Join(x.dir, "var/lib/weir")
	if err := os.MkdirAll(state, 0o755); err != nil {
		return x, err
	}
	if err := unix.Mount("weir", state, "tmpfs", 0, "mode=0700,size="+stateSize); err != nil {
		return x, fmt.Errorf("mount %s: %w", state, err)
	}
	if err := x.serve(); err != nil {
		return x, err
	}
	for _, port := range []int{22, 23} {
		if err := x.services.tcp(x.host, fmt.Sprintf(":%d", port)); err != nil {
			return x, err
		}
	}
	for _, port := range []int{81, 82} {
		if err := x.services.tcp(x.web, fmt.Sprintf(":%d", port)); err != nil {
			return x, err
		}
	}
	if err := x.makePeer(); err != nil {
		return x, err
	}
	if err := x.raise(); err != nil {
		return x, err
	}
	if err := x.meet(); err != nil {
		return x, err
	}
	x.probes, err = x.outsiders(4)
	return x, err
}

// makePeer makes the second host with one pod, whose web server is reached through the tunnel.
func (x *chaos) makePeer() (err error) {
	p := &testbed{lab: x.lab, services: x.services}
	x.peer = p
	if p.host, err = x.lab.AddNode("peer"); err != nil {
		return err
	}
	if p.web, err = x.lab.AddNode("far"); err != nil {
		return err
	}
	here, err := nstest.Prefixes("10.67.0.2/24")
	if err != nil {
		return err
	}
	there, err := nstest.Prefixes("10.67.0.1/24")
	if err != nil {
		return err
	}
	err = x.lab.AddLink(nstest.End{Node: p.host, Iface: "eth0", Addrs: here},
		nstest.End{Node: x.host, Iface: "eth1", Addrs: there})
	if err != nil {
		return err
	}
	if err := x.services.tcp(p.web, ":80"); err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp("", fmt.Sprintf("weir-%d-chaos-", os.Getpid())); err != nil {
		return err
	}
	if p.agentNode, err = newAgentNode(x.config.weir, p.host, p.dir); err != nil {
		return err
	}
	if err := errors.Join(p.agentNode.write("etc/weir/weir.toml", peerSettings),
		p.agentNode.write("etc/weir/rules", peerRules)); err != nil {
		return err
	}
	if err := p.agentNode.start(); err != nil {
		return err
	}
	return p.agentNode.attach(p.web, "--addr", "10.89.0.2")
}

// raise starts the host's Weir with its pods.
func (x *chaos) raise() (err error) {
	if x.agentNode, err = newAgentNode(x.config.weir, x.host, x.dir); err != nil {
		return err
	}
	if err := errors.Join(x.agentNode.write("etc/weir/weir.toml", chaosSettings),
		x.agentNode.write("etc/weir/rules", chaosRules)); err != nil {
		return err
	}
	if err := x.agentNode.start(); err != nil {
		return err
	}
	if err := x.agentNode.attach(x.web, "--label", "app=web", "--addr", webAddr, "--publish",
		"8080:80"); err != nil {
		return err
	}
	return x.agentNode.attach(x.client, "--label", "role=client", "--addr", clientAddr)
}

// meet makes both hosts peers.
func (x *chaos) meet() error {
	if err := x.addPeer(); err != nil {
		return err
	}
	key, err := x.agentNode.run("peer", "key")
	if err != nil {
		return err
	}
	_, err = x.peer.agentNode.run("peer", "add", "left", "--key", strings.TrimSpace(string(key)),
		"--endpoint", "10.67.0.1:51820", "--pods", "10.88.0.0/24")
	return err
}

func (x *chaos) addPeer() error {
	key, err := x.peer.agentNode.run("peer", "key")
	if err != nil {
		return err
	}
	_, err = x.agentNode.run("peer", "add", "right", "--key", strings.TrimSpace(string(key)),
		"--endpoint", "10.67.0.2:51820", "--pods", "10.89.0.0/24")
	return err
}

// tunnel is a stream to the peer's pod.
var tunnel = work{"tunnel", clientNode, "tcp", "10.89.0.2:80", "", true}

// begin starts streams and probes.
func (x *chaos) begin() {
	podToPod := work{"pod to pod", clientNode, "tcp", webAddr + ":80", "", true}
	for _, k := range []work{tcpIn, published, masqTCP, podToPod, tunnel} {
		for range 2 {
			s := &stream{work: k}
			x.streams = append(x.streams, s)
			go s.run(x.testbed, x.over)
		}
	}
	for _, p := range x.probes {
		go p.run(x.over, &x.probed, &x.passed)
	}
}

// awaitStreams waits until each stream has carried a block.
func (x *chaos) awaitStreams() error {
	deadline := time.Now().Add(longTimeout)
	for _, s := range x.streams {
		for ; s.blocks.Load() == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("%s: no block has come back after %v", s.work.name, longTimeout)
			}
		}
	}
	return nil
}

// excuse lets the streams of a kind break for half a minute from the end of a disturbance.
func (x *chaos) excuse(kind string) {
	for _, s := range x.streams {
		if s.work.name == kind {
			s.excuse(time.Now().Add(2 * keptTimeout))
		}
	}
}

func (x *chaos) close() error {
	var errs []error
	if x.peer != nil && x.peer.agentNode != nil {
		errs = append(errs, x.peer.agentNode.close(), os.RemoveAll(x.peer.dir))
	}
	if x.testbed != nil {
		if x.services != nil {
			x.services.close()
			x.services = nil
		}
		if x.agentNode != nil {
			errs = append(errs, x.agentNode.close())
			x.agentNode = nil
		}
		unix.Unmount(filepath.Join(x.dir, "var/lib/weir"), unix.MNT_DETACH)
		errs = append(errs, x.testbed.close())
	}
	return errors.Join(errs...)
}

// extra makes a namespace for a pod that comes and goes, its address outside of what else is used.
// end ends the namespace: a lab of its own, since a handle keeps a namespace alive.
func (x *chaos) extra() (n *nstest.Node, addr netip.Addr, end func() error, err error) {
	x.churned++
	lab, err := nstest.Open()
	if err != nil {
		return nil, addr, nil, err
	}
	if n, err = lab.AddNode(fmt.Sprintf("churn%d", x.churned)); err != nil {
		return nil, addr, nil, errors.Join(err, lab.Close())
	}
	return n, netip.AddrFrom4([4]byte{10, 88, 0, byte(100 + x.churned%100)}), lab.Close, nil
}
