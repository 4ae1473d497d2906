package netfilter

import (
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// traffic is the new flows from the pods of a range, or to them, through the stack.
type traffic struct {
	pods netip.Prefix
	from bool
}

func (j traffic) String() string {
	if j.from {
		return "what pods of " + j.pods.String() + " send"
	}
	return "what goes to pods of " + j.pods.String()
}

func (j traffic) family() uint8 {
	if j.pods.Addr().Is4() {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}

// certainty is whether a rule matches the packets of the traffic.
type certainty int

const (
	no certainty = iota
	perhaps
	yes
)

// Dropped returns what the chains of netfilter at the hook forward drop of the pods' new flows, and
// which chain it is; "" if nothing. Rules count that are understood whole and match all packets of
// that traffic. Of the packets to pods, what perhaps accepts them is taken to do so: many rule sets
// accept the answers alone.
func (s *Scope) Dropped() (what, where string, err error) {
	for _, pods := range s.Pods {
		for _, j := range []traffic{{pods, true}, {pods, false}} {
			where, err := s.droppedBy(j)
			if nl.NFTAbsent(err) {
				where, err = "", nil
			}
			if where == "" && err == nil {
				where, err = s.droppedByLegacy(j)
			}
			if where != "" || err != nil {
				return j.String(), where, err
			}
		}
	}
	return "", "", nil
}

// droppedBy returns the chain of nftables that drops the packets of the traffic.
func (s *Scope) droppedBy(j traffic) (string, error) {
	for _, family := range []uint8{unix.NFPROTO_INET, j.family()} {
		chains, err := nl.NFTChains(family)
		if err != nil {
			return "", err
		}
		for _, c := range chains {
			if !c.Base || c.Hook != unix.NF_INET_FORWARD {
				continue
			}
			v, err := s.through(j, c, map[string]bool{})
			if err != nil {
				return "", err
			}
			if v == drops || v != accepts && c.Drops {
				return describe(c), nil
			}
		}
	}
	return "", nil
}

// through follows a chain and those that it jumps to, each once.
func (s *Scope) through(j traffic, c nl.NFTChain, seen map[string]bool) (verdict, error) {
	seen[c.Name] = true
	rules, err := nl.NFTRules(c)
	if err != nil {
		return undecided, err
	}
	for _, r := range rules {
		asks, does := readRule(r)
		sure := s.matches(j, &asks)
		if sure == no {
			continue
		}
		v := does.verdict
		if does.anywhere {
			v, sure = accepts, perhaps // a map of verdicts, as for states of conntrack
		}
		if does.jump != "" && !seen[does.jump] {
			next := c
			next.Name = does.jump
			if v, err = s.through(j, next, seen); err != nil {
				return undecided, err
			}
			if v == returns {
				v = undecided
			}
		}
		if v != undecided && (sure == yes || v == accepts && !j.from) {
			return v, nil
		}
	}
	return undecided, nil
}

// matches reports whether a rule matches the packets of the traffic. It does not if it is about
// those from or to containers of another program alone. For what goes to pods, it does not if it is
// about what pods send.
func (s *Scope) matches(j traffic, c *conditions) certainty {
	if c.local || c.family != 0 && c.family != j.family() || s.unguarded(c.in) ||
		s.unguarded(c.out) {
		return no
	}
	own, other := c.src, c.dst
	in, begins, elsewhere := c.in, c.inBegins, c.out+c.outBegins
	if !j.from {
		own, other = other, own
		in, begins, elsewhere = c.out, c.outBegins, c.in+c.inBegins
	}
	if !j.from && (strings.HasPrefix(elsewhere, hostEnds) ||
		other.IsValid() && other.Bits() > 0 && other.Overlaps(j.pods)) {
		return no // about what pods send
	}
	sure := yes
	if c.more || elsewhere != "" || other.IsValid() && other.Bits() > 0 {
		sure = perhaps
	}
	switch {
	case own.IsValid() && !own.Overlaps(j.pods):
		return no
	case own.IsValid() && own.Bits() > j.pods.Bits():
		sure = perhaps
	}
	switch { // the host ends of pods are weir and 8 digits
	case in == "" && strings.HasPrefix(hostEnds, begins):
	case strings.HasPrefix(begins, hostEnds):
		sure = perhaps
	default:
		return no
	}
	return sure
}

const hostEnds = "weir"
