package nstest

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/weirnet/weir/internal/nl"
)

// Lab is a set of network namespaces that live and die together. Its methods may be called by
// several goroutines.
type Lab struct {
	mu    sync.Mutex
	nodes []*Node
	t     TB // nil outside a test: then errors are returned, not reported
}

// Open starts an empty lab, after removing what dead processes left behind. The caller closes
// it.
func Open() (*Lab, error) {
	if err := sweep(); err != nil {
		return nil, err
	}
	return &Lab{}, nil
}

// AddNode makes a namespace with the loopback on. The label becomes part of the name that `ip
// netns` shows.
func (l *Lab) AddNode(label string) (*Node, error) {
	n, err := newNode(label)
	if err != nil {
		return nil, fmt.Errorf("make namespace %s: %w", label, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes = append(l.nodes, n)
	return n, nil
}

// End is one end of a veth pair.
type End struct {
	Node  *Node
	Iface string
	Addrs []netip.Prefix
}

// AddLink connects two nodes by a veth pair. Both ends are up and all addresses can be used at
// once.
func (l *Lab) AddLink(a, b End) error {
	v := nl.Veth{Name: a.Iface, NS: a.Node.ns, PeerName: b.Iface, PeerNS: b.Node.ns}
	if err := a.Node.conn.AddVeth(v); err != nil {
		return fmt.Errorf("join %s and %s: %w", a.Node, b.Node, err)
	}
	for _, step := range []func(End) error{End.bringUp, End.awaitUsable} {
		for _, e := range []End{a, b} {
			if err := step(e); err != nil {
				return fmt.Errorf("join %s and %s: %w", a.Node, b.Node, err)
			}
		}
	}
	return nil
}

func (e End) bringUp() error {
	link, err := e.Node.conn.LinkByName(e.Iface)
	if err != nil {
		return err
	}
	for _, p := range e.Addrs {
		if err := e.Node.conn.AddAddr(link.Index, p); err != nil {
			return err
		}
	}
	return e.Node.conn.SetLinkUp(link.Index)
}

// usableTimeout is how long a link may take from carrier to use. The kernel notices a carrier in a
// work queue that runs once a second; since 6.9 a query of the link makes it do so at once. Until
// then packets are dropped and there is no link-local address, without which a router asks for no
// IPv6 neighbour. On a machine with thirty processes for two processors 5 s were not enough once.
const usableTimeout = time.Minute

func (e End) awaitUsable() error {
	for deadline := time.Now().Add(usableTimeout); ; time.Sleep(2 * time.Millisecond) {
		usable, err := e.usable()
		if err != nil || usable {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s of %s cannot be used after %v: no carrier or no link-local "+
				"address", e.Iface, e.Node, usableTimeout)
		}
	}
}

func (e End) usable() (bool, error) {
	link, err := e.Node.conn.LinkByName(e.Iface)
	if err != nil || !link.OperUp {
		return false, err
	}
	addrs, err := e.Node.conn.Addrs(link.Index)
	if err != nil {
		return false, err
	}
	linkLocal := false
	for _, a := range addrs {
		if a.Tentative {
			return false, nil
		}
		linkLocal = linkLocal || a.Prefix.Addr().Is6() && a.Prefix.Addr().IsLinkLocalUnicast()
	}
	return linkLocal, nil
}

// Close ends what still runs inside the lab and removes the lab. It may be called again.
func (l *Lab) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, n := range l.nodes {
		errs = append(errs, n.close())
	}
	l.nodes = nil
	return errors.Join(errs...)
}

// Prefixes reads addresses with their network lengths, separated by blanks.
func Prefixes(list string) ([]netip.Prefix, error) {
	var ps []netip.Prefix
	for s := range strings.FieldsSeq(list) {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, err
		}
		ps = append(ps, p)
	}
	return ps, nil
}
