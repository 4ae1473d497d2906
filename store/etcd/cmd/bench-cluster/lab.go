package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// kernelNodes is how many hosts enforce rules in the kernel.
const kernelNodes = 4

// labTimeout is how long the lab waits for what a program does.
const labTimeout = time.Minute

// lab is a weir-store and hosts with real agents, each in a namespace of its own.
type lab struct {
	*nstest.Lab
	store *nstest.Node
	nodes []*kernelNode
}

// kernelNode is a host with `weir up`.
type kernelNode struct {
	name    string
	addr    netip.Addr // as the store's namespace reaches it
	node    *nstest.Node
	program string
	root    string
	bpffs   string
	unmount func() error
	agent   *nstest.Cmd
}

// newLab makes the namespaces. The store has an interface to each host.
func (b *bench) newLab() (l *lab, err error) {
	l = &lab{}
	if l.Lab, err = nstest.Open(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.store, err = l.AddNode("store"); err != nil {
		return l, err
	}
	for i := 1; i <= kernelNodes; i++ {
		n := &kernelNode{name: fmt.Sprint("k", i), program: b.weir,
			addr: netip.AddrFrom4([4]byte{10, 127, byte(i), 2}),
			root: filepath.Join(b.dir, fmt.Sprint("k", i))}
		if n.node, err = l.AddNode(n.name); err != nil {
			return l, err
		}
		near := fmt.Sprintf("10.127.%d.1", i)
		if err := l.AddLink(nstest.End{Node: l.store, Iface: fmt.Sprint("eth", i),
			Addrs: []netip.Prefix{netip.MustParsePrefix(near + "/24")}},
			nstest.End{Node: n.node, Iface: "eth0",
				Addrs: []netip.Prefix{netip.PrefixFrom(n.addr, 24)}}); err != nil {
			return l, err
		}
		if i > 1 { // weir-store has the address of the first link
			if err := n.node.AddRoute(netip.MustParsePrefix("10.127.1.0/24"),
				netip.MustParseAddr(near)); err != nil {
				return l, err
			}
		}
		pins, unmount, err := nstest.MountBpffs()
		if err != nil {
			return l, err
		}
		n.bpffs, n.unmount = filepath.Join(pins, "weir"), unmount
		l.nodes = append(l.nodes, n)
	}
	return l, nil
}

func (l *lab) close() error {
	var errs []error
	for _, n := range l.nodes {
		errs = append(errs, n.close())
	}
	return errors.Join(append(errs, l.Lab.Close())...)
}

// start runs `weir up` until it is ready.
func (n *kernelNode) start() error {
	settings := filepath.Join(n.root, "etc/weir/weir.toml")
	if err := os.MkdirAll(filepath.Dir(settings), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(settings, []byte("[overlay]\n"), 0o600); err != nil {
		return err
	}
	n.agent = n.node.Command(n.program, "up", "--root", n.root, "--bpffs", n.bpffs)
	pipe, err := n.agent.StderrPipe()
	if err != nil {
		return err
	}
	if err := n.agent.Start(); err != nil {
		n.agent = nil
		return err
	}
	ready := make(chan string, 1)
	go func() {
		var said bytes.Buffer
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "weir: ready") {
				ready <- ""
			} else if said.Len() < 1<<16 {
				fmt.Fprintln(&said, lines.Text())
			}
		}
		select {
		case ready <- said.String():
		default:
		}
	}()
	select {
	case said := <-ready:
		if said != "" {
			return fmt.Errorf("%s: weir up ended: %s", n.name, said)
		}
		return nil
	case <-time.After(labTimeout):
		return fmt.Errorf("%s: weir up is not ready", n.name)
	}
}

// run runs a command of weir on the host.
func (n *kernelNode) run(args ...string) (string, error) {
	c := n.node.Command(n.program, append([]string{"--root", n.root, "--bpffs", n.bpffs},
		args...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: weir %s: %w: %s", n.name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (n *kernelNode) close() error {
	var errs []error
	if n.agent != nil {
		_, err := n.run("down")
		errs = append(errs, err)
		ended := make(chan error, 1)
		go func() { ended <- n.agent.Wait() }()
		select {
		case <-ended:
		case <-time.After(labTimeout):
			errs = append(errs, n.agent.Process.Signal(syscall.SIGKILL))
		}
	}
	return errors.Join(append(errs, n.unmount())...)
}

// serveIn runs weir-store in a namespace.
func (b *bench) serveIn(n *nstest.Node) (stop func(), err error) {
	c := n.Command(b.program, "serve", "-dir", filepath.Join(b.dir, "store"))
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return nil, err
	}
	b.store = c.Cmd
	return func() {
		_ = c.Process.Kill() // it is the end anyway
		_ = c.Wait()
	}, nil
}

// mayLab reports whether this process may make namespaces.
func mayLab() bool {
	_, err := exec.LookPath("ip")
	return os.Geteuid() == 0 && err == nil
}
