package rule

import (
	"slices"

	"github.com/weirnet/weir/rule/op"
)

// Omission is a kind of traffic that a host usually needs and that the rules do not allow.
type Omission uint8

// The omissions.
const (
	NoSSH        Omission = iota + 1 // no connection to TCP port 22 can come in
	NoICMPErrors                     // TCP passes without states, ICMP errors do not
	NoTooBig                         // the same for IPv6: "packet too big"
	NoNeighbours                     // IPv6 passes, and neighbour discovery does not
	NoDHCP                           // the host's DHCP client is refused
	NoLoopback                       // the loopback is guarded, and refused
)

// String returns the omission as a sentence.
func (o Omission) String() string {
	return map[Omission]string{
		NoSSH: "no rule lets a connection to ssh (TCP port 22) come in: you cannot reach " +
			"the host by ssh any more",
		NoICMPErrors: "TCP passes without states, and ICMP errors (icmptypes 3) do not: path MTU " +
			"discovery fails, connections hang",
		NoTooBig: "TCP over IPv6 passes without states, and \"packet too big\" (icmp6types 2) " +
			"does not: path MTU discovery fails, connections hang",
		NoNeighbours: "neighbour discovery is left to the rules (essential = false), and they " +
			"refuse icmp6types 135 or 136: IPv6 does not work",
		NoDHCP: "the DHCP client is left to the rules (dhcp = false), and they refuse UDP port " +
			"68 to 67 out or 67 to 68 in: a host with a DHCP lease loses its address",
		NoLoopback: "the loopback is guarded, and the rules refuse what passes lo: programs of " +
			"this host do not reach each other",
	}[o]
}

// Host describes which traffic the settings of a host leave to the rules.
type Host struct {
	Neighbours bool // neighbour discovery (essential = false)
	DHCP       bool // what the DHCP client sends and receives (dhcp = false)
	Loopback   bool // the loopback is guarded
}

// Omissions returns the traffic that a host usually needs and that its rules do not allow. Like
// Lint, it reports only what is proved: conditions that depend on more than the packet count as
// possible.
func Omissions(s *Ruleset, h Host) (all []Omission, err error) {
	l, err := newLinter(s)
	if err != nil {
		return nil, err
	}
	missing := func(o Omission, probes ...string) {
		if slices.ContainsFunc(probes, func(p string) bool { return !l.passesSome(p, false) }) {
			all = append(all, o)
		}
	}
	missing(NoSSH, "tcp from any to any 22 in tcpflags syn,!ack,!rst,!fin")
	if l.stateless("ip4") {
		missing(NoICMPErrors, "icmp from any to any in icmptypes 3")
	}
	if l.stateless("ip6") {
		missing(NoTooBig, "ipv6-icmp from any to any in icmp6types 2")
	}
	if h.Neighbours && l.passesSome("ip6 from any to any in", false) {
		missing(NoNeighbours, "ipv6-icmp from any to any in icmp6types 135",
			"ipv6-icmp from any to any in icmp6types 136",
			"ipv6-icmp from any to any out icmp6types 135",
			"ipv6-icmp from any to any out icmp6types 136")
	}
	if h.DHCP {
		missing(NoDHCP, "ip4 from any 68 to any 67 out proto udp",
			"ip4 from any 67 to any 68 in proto udp")
	}
	if h.Loopback && !l.loopback() {
		all = append(all, NoLoopback)
	}
	return all, nil
}

// loopback reports whether a connection at the loopback may pass. It is evaluated on its way out,
// then on its way in: a state that the first makes lets it pass at the second.
func (l *linter) loopback() bool {
	const packet = "tcp from 127.0.0.1 40000 to 127.0.0.1 40001 tcpflags syn,!ack,!rst,!fin "
	in := l.passesSome(packet+"in recv lo", true)
	for slot, r := range l.rules {
		if r.passes() && r.mayMatch("lo") && (in || r.State.Op != op.StateNone) &&
			l.meets(slot, packet+"out xmit lo") {
			return true
		}
	}
	return false
}

// stateless reports whether TCP of a family passes, and no rule makes states for it.
func (l *linter) stateless(family string) bool {
	for slot, r := range l.rules {
		if r.State.Op != op.StateNone && r.State.Op != op.StateCheck &&
			l.meets(slot, family+" from any to any proto tcp") {
			return false
		}
	}
	return l.passesSome(family+" from any to any in proto tcp established", false)
}

// passesSome reports whether a rule may let a packet of the probe pass. A probe is the body of a
// rule. At the loopback, rules for other interfaces do not count.
func (l *linter) passesSome(probe string, loopback bool) bool {
	for slot, r := range l.rules {
		if r.passes() && (!loopback || r.mayMatch("lo")) && l.meets(slot, probe) {
			return true
		}
	}
	return false
}

// meets reports whether a packet of the probe may come to the rule in a slot and match it.
func (l *linter) meets(slot int, probe string) bool {
	p, err := ParseRule("allow "+probe, nil)
	if err != nil {
		return true // never
	}
	r := *l.rules[slot]
	r.Options = append(slices.Clone(r.Options), p.Clauses()...)
	box, opaque, empty := l.boxes[slot], l.opaque[slot], l.empty[slot]
	l.boxes[slot], l.opaque[slot], l.empty[slot] = [lintDims]spans{}, nil, false
	l.prepare(slot, &r)
	finding, _ := l.examine(slot)
	l.boxes[slot], l.opaque[slot], l.empty[slot] = box, opaque, empty
	return finding == nil
}

// mayMatch reports whether the rule's interfaces may be the one with a name.
func (r *Rule) mayMatch(name string) bool {
	for _, c := range r.Clauses() {
		if !slices.ContainsFunc(c, func(t Test) bool { return t.mayBe(name) }) {
			return false
		}
	}
	return true
}

func (t *Test) mayBe(name string) bool {
	switch t.Op {
	case op.CondRecv, op.CondXmit, op.CondVia:
		return (t.Name == name) != t.Not
	case op.CondRecvGlob, op.CondXmitGlob, op.CondViaGlob:
		return Glob(t.Name, name) != t.Not
	}
	return true
}
