package program

import (
	"fmt"
	"net/netip"
)

// NATContinues is set in Rule.Arg of a rule with nat whose packets continue with the next rule
// (one_pass is disabled). Below it is the number of the instance.
const NATContinues = 1 << 16

// NATFlow is the flow name of the states that rules keep whose instance has deny_in. No rule can
// write it.
const NATFlow = "(nat)"

// MaxNATPorts is how many ports and addresses all instances of a Program may redirect.
const MaxNATPorts = 32768

// NAT is an instance of address translation: what "nat N config" says. It is for IPv4 only.
type NAT struct {
	// the interface whose first address the instance has, "" if it has Addr
	Iface string
	Addr  netip.Addr
	// what comes in, belongs to no translation and answers nothing of the host itself is denied
	DenyIn bool
	// only sources of RFC 1918 are translated; UnregCGN: and those of RFC 6598
	Unreg, UnregCGN bool
	Ports           []NATPort
	Addrs           []NATAddr
	Number          uint16 // in a Program; 0 elsewhere
}

// NATPort is redirect_port: Count ports from Port on lead to those from To on.
type NATPort struct {
	Proto uint8      // of IP: TCP or UDP
	Alias netip.Addr // of the host; invalid for that of the instance
	Port  uint16
	Count int
	To    netip.AddrPort
}

// NATAddr is redirect_addr: Local has the address Public for itself, in both directions.
type NATAddr struct{ Local, Public netip.Addr }

// FindNAT returns the instance with a number, nil if there is none.
func (p *Program) FindNAT(number uint16) *NAT {
	for i := range p.NATs {
		if p.NATs[i].Number == number {
			return &p.NATs[i]
		}
	}
	return nil
}

// checkNATs returns an error if an engine could not have the instances.
func (p *Program) checkNATs() error {
	ports := 0
	for i := range p.NATs {
		x := &p.NATs[i]
		if x.Number == 0 || p.FindNAT(x.Number) != x {
			return fmt.Errorf("program: nat %d is defined twice, or has no number", x.Number)
		}
		if x.Iface == "" && !x.Addr.Is4() {
			return fmt.Errorf("program: nat %d has no address", x.Number)
		}
		for _, r := range x.Ports {
			if ports += r.Count; r.Port == 0 || r.To.Port() == 0 || !r.To.Addr().Is4() ||
				r.Count < 1 || int(r.Port)+r.Count > 1<<16 || int(r.To.Port())+r.Count > 1<<16 {
				return fmt.Errorf("program: nat %d: a redirected port or its target is not valid",
					x.Number)
			}
		}
		ports += len(x.Addrs)
		for _, r := range x.Addrs {
			if !r.Local.Is4() || !r.Public.Is4() {
				return fmt.Errorf("program: nat %d: a redirected address is not IPv4", x.Number)
			}
		}
	}
	if ports > MaxNATPorts {
		return fmt.Errorf("program: %d redirected ports and addresses; at most %d", ports,
			MaxNATPorts)
	}
	return nil
}
