package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/internal/program"
)

// FwdMark is the mark of packets that a rule with fwd gives to a socket of the host and that are
// addressed to another one. The host has to take them for its own: a routing rule for the mark
// leads to a table with a local route to everything.
const FwdMark = fwdMark

// NextHop is how packets get to the next hop of a rule with fwd.
type NextHop struct {
	To        netip.Addr // as the rule has it
	Via       netip.Addr // To, or the gateway to it
	Interface uint32     // index; 0: there is no route
	MTU       uint32     // of the route, bytes; 0: that of the interface
}

// SetNextHops sets how packets get to next hops, beside those that are known. Those that the
// Program in force does not name are forgotten by the next Load.
func (e *Engine) SetNextHops(hops []NextHop) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.staged != nil { // the first Load writes them
		e.stagedHops = append(e.stagedHops, hops...)
		return nil
	}
	return e.putHopsLocked(hops)
}

func (e *Engine) putHopsLocked(hops []NextHop) error {
	e.hops = e.hops || len(hops) > 0
	for _, h := range hops {
		v := weirHop{Via: wordsOf(h.Via), Ifindex: h.Interface, Mtu: h.MTU}
		if err := e.objects.Hops.Put(wordsOf(h.To), v); err != nil {
			return fmt.Errorf("write the next hop %s: %w", h.To, err)
		}
	}
	return nil
}

// forgetHopsLocked forgets the next hops that a Program, which is in force, does not name.
func (e *Engine) forgetHopsLocked(p *program.Program) error {
	if !e.takenOver && !e.hops {
		return nil
	}
	named := map[weirAddress]bool{}
	for _, h := range p.NextHops {
		named[wordsOf(h.Addr())] = true
	}
	err := prune(e.objects.Hops, func(k weirAddress) bool { return named[k] })
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget next hops: %w", err)
	}
	return nil
}
