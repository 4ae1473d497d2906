package rule

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule/op"
)

// NAT is what "nat N config" says: an instance of address translation, for the rules that name it.
// FormatNAT prints it.
type NAT = program.NAT

// NATPort is redirect_port of a NAT.
type NATPort = program.NATPort

// NATAddr is redirect_addr of a NAT.
type NATAddr = program.NATAddr

// FormatNAT returns a configuration in canonical form, as it stands behind "nat N config". Words
// that have no effect are not in it.
func FormatNAT(x *NAT) string {
	b := make([]byte, 0, 64)
	if x.Iface != "" {
		b = append(append(b, "if "...), x.Iface...)
	} else {
		b = append(append(b, "ip "...), x.Addr.String()...)
	}
	for _, word := range [...]struct {
		name string
		is   bool
	}{{"deny_in", x.DenyIn}, {"unreg_only", x.Unreg && !x.UnregCGN}, {"unreg_cgn", x.UnregCGN}} {
		if word.is {
			b = append(append(b, ' '), word.name...)
		}
	}
	for _, r := range x.Ports {
		b = fmt.Appendf(b, " redirect_port %s %s:%s ", packet.Proto(r.Proto), r.To.Addr(),
			portsFrom(r.To.Port(), r.Count))
		if r.Alias.IsValid() {
			b = append(append(b, r.Alias.String()...), ':')
		}
		b = append(b, portsFrom(r.Port, r.Count).String()...)
	}
	for _, r := range x.Addrs {
		b = fmt.Appendf(b, " redirect_addr %s %s", r.Local, r.Public)
	}
	return string(b)
}

func portsFrom(first uint16, count int) Range {
	return Range{uint32(first), uint32(first) + uint32(count) - 1}
}

// nat returns the number of the instance that the rule names, 0 if it names none.
func (r *Rule) nat() uint16 {
	if r.Action.Op != op.ActionNAT {
		return 0
	}
	return uint16(r.Action.Arg)
}

// takeNATs makes the instances that rules name and that have a configuration.
func (c *compiler) takeNATs(s *Ruleset, rules []*Rule) error {
	named := map[uint16]*NAT{}
	for _, r := range rules {
		if x := s.NATs[r.nat()]; x != nil {
			named[r.nat()] = x
		}
	}
	for _, number := range slices.Sorted(maps.Keys(named)) {
		x := *named[number]
		x.Number = number
		c.NATs = append(c.NATs, x)
	}
	ports := 0
	for i := range c.NATs {
		ports += len(c.NATs[i].Addrs)
		for _, r := range c.NATs[i].Ports {
			ports += r.Count
		}
	}
	if ports > program.MaxNATPorts {
		return fmt.Errorf("nat: %d redirected ports and addresses; at most %d", ports,
			program.MaxNATPorts)
	}
	return redirectedTwice(c.NATs)
}

// redirection is what leads from ports of an address, or an interface's address, to other hosts;
// without proto all of the address.
type redirection struct {
	at          string
	proto       uint8
	first, last int
	nat         uint16
}

// redirectedTwice returns an error if two redirections have a port of one address. What addresses
// the interfaces have is not known here.
func redirectedTwice(nats []NAT) error {
	var all []redirection
	for _, x := range nats {
		own := "interface " + x.Iface
		if x.Iface == "" {
			own = x.Addr.String()
		}
		for _, r := range x.Ports {
			at := own
			if r.Alias.IsValid() {
				at = r.Alias.String()
			}
			all = append(all, redirection{at, r.Proto, int(r.Port), int(r.Port) + r.Count - 1,
				x.Number})
		}
		for _, r := range x.Addrs {
			all = append(all, redirection{at: r.Public.String(), nat: x.Number})
		}
	}
	slices.SortFunc(all, func(a, b redirection) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.proto, b.proto),
			cmp.Compare(a.first, b.first), cmp.Compare(a.nat, b.nat))
	})
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		switch {
		case a.at != b.at || a.proto != b.proto || b.first > a.last:
		case b.proto == 0:
			return fmt.Errorf("nat %d: %s is redirected by nat %d already", b.nat, b.at, a.nat)
		default:
			return fmt.Errorf("nat %d: %s port %d of %s is redirected by nat %d already", b.nat,
				packet.Proto(b.proto), b.first, b.at, a.nat)
		}
	}
	return nil
}

// natRule makes the Code of a rule with nat. Without an instance ipfw drops what it would
// translate. With deny_in the rule keeps states of what the host itself sends.
func (c *compiler) natRule(code *program.Rule, r *Rule, manyPass bool) error {
	x := c.FindNAT(r.nat())
	if x == nil {
		code.Action = op.ActionDeny
		return nil
	}
	code.Arg = uint32(r.nat())
	if x.DenyIn {
		code.State = op.StateKeep
		// The text of a rule that keeps states no more may stay: its states do not, whose flow name
		// goes with it.
		code.Key = max(fnv1a(code.Key, program.NATFlow), 1)
	}
	if manyPass {
		code.Arg |= program.NATContinues
		if x.DenyIn {
			return errors.New("one_pass is disabled, so rules behind this one decide what comes " +
				"in: leave deny_in out, and write a rule with deny at the end")
		}
	}
	return nil
}

// MissingNAT reports whether a rule names an instance that has no configuration.
func (s *Ruleset) MissingNAT(r *Rule) bool {
	return r.Action.Op == op.ActionNAT && s.NATs[r.nat()] == nil
}
