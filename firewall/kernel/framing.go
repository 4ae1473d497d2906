package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/internal/nl"
)

// framing is what lies before the IP header of packets at the hooks of an interface.
type framing int

const (
	ethernet   framing = iota // 14 bytes; before packets of the loopback they are zeros
	bareIP                    // nothing
	infiniband                // l2Infiniband
)

const l2Infiniband = 24 // bytes: the neighbour's address, and what RFC 4391 puts before IP

// framings are those of the types of interfaces (ARPHRD_*) that are known to come to the hooks so,
// in both directions, since Linux 5.14. Earlier kernels had headers of their own before what came
// out of a tunnel. What is not here is not guarded: its packets would be taken for others.
var framings = map[string]framing{
	"ether":      ethernet,
	"loopback":   ethernet,
	"infiniband": infiniband,
	"none":       bareIP, // tun, WireGuard, xfrm, GRE and others by metadata
	"unknown519": bareIP, // ARPHRD_RAWIP: modems
	"ppp":        bareIP,
	"ipip":       bareIP, // ARPHRD_TUNNEL; vti, too
	"tunnel6":    bareIP, // ip6tnl, vti6
	"sit":        bareIP,
	"gre":        bareIP,
	"unknown823": bareIP, // ARPHRD_IP6GRE
}

// framingOf returns the framing of an interface, or an error that says why it cannot be guarded.
func framingOf(l nl.Link) (framing, error) {
	f, ok := framings[l.Encap]
	switch {
	case !ok:
		return 0, fmt.Errorf("frames of type %q are not known: its packets are not evaluated; "+
			"guard the interfaces that they come from and go to, and leave this one out (weir up "+
			"--iface)", l.Encap)
	case l.NoRemote:
		return 0, fmt.Errorf("a GRE tunnel without a remote address bears a header of its own " +
			"before " +
			"each packet: its packets are not evaluated; give it a remote address, or leave it " +
			"out " +
			"(weir up --iface)")
	}
	return f, nil
}

// programLocked returns the program for a direction of an interface.
func (e *Engine) programLocked(f framing, direction int) (*ebpf.Program, error) {
	o := &e.objects
	switch f {
	case ethernet:
		return [2]*ebpf.Program{o.WeirIn, o.WeirOut}[direction], nil
	case bareIP:
		err := e.needLocked("weir_in_l3", "weir_out_l3")
		return [2]*ebpf.Program{o.WeirInL3, o.WeirOutL3}[direction], err
	}
	err := e.needLocked("weir_in_ib", "weir_out_ib")
	return [2]*ebpf.Program{o.WeirInIb, o.WeirOutIb}[direction], err
}

// reframeLocked gives an attachment the programs for the framing that its interface has by now. The
// kernel changes the type of an interface that has hooks: a bond or a team takes that of its first
// port. If it fails, the next call tries all of it again.
func (e *Engine) reframeLocked(a *attachment, f framing) (err error) {
	was := a.framing
	a.framing = f
	defer func() {
		if err != nil {
			a.framing = was
		}
	}()
	if a.filters[0] {
		err = errors.Join(e.filterLocked(a, 0), e.filterLocked(a, 1))
	} else if f != was {
		err = e.updateLocked(a)
	}
	if err == nil && f != was {
		err = e.putNICLocked(a.index)
	}
	return err
}

// updateLocked gives the links of an attachment the programs for its framing.
func (e *Engine) updateLocked(a *attachment) error {
	for d, l := range a.links {
		if l == nil {
			continue
		}
		p, err := e.programLocked(a.framing, d)
		if err == nil {
			err = l.Update(p)
		}
		if err != nil {
			return fmt.Errorf("update the program of interface %d %s: %w", a.index,
				directions[d].name, err)
		}
	}
	return nil
}
