package netfilter

import (
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// droppedByLegacy does for the tables of iptables-legacy what droppedBy does.
func (s *Scope) droppedByLegacy(j traffic) (string, error) {
	l := &layouts[0]
	if j.family() == unix.NFPROTO_IPV6 {
		l = &layouts[1]
	}
	t, err := s.readLegacy(l, "filter")
	if t == nil || err != nil {
		return "", err
	}
	const hook = unix.NF_INET_FORWARD
	if t.through(j, t.first[hook], t.last[hook]) == drops {
		return "table filter chain FORWARD of iptables-legacy", nil
	}
	return "", nil
}

// through follows a chain and those that it jumps to, each once. The last entry of the chain of a
// hook is its policy. What does not look like an entry decides nothing.
func (t *legacyTable) through(j traffic, at, last int) verdict {
	t.seen[at] = true
	for {
		asks, target, next, ok := t.entry(at)
		if !ok || targetName(target) == errorTarget {
			return undecided
		}
		c := t.conditions(asks)
		if sure := t.scope.matches(j, &c); sure != no {
			v := t.decides(j, target)
			if v != undecided && (sure == yes || v == accepts && !j.from) {
				return v
			}
		}
		if at == last {
			return undecided
		}
		at = next
	}
}

// xtReturn is the verdict that leads back to the chain that jumped: XT_RETURN of
// include/uapi/linux/netfilter/x_tables.h. A verdict of netfilter stands as -1 less it.
const xtReturn = -5

// decides returns what a target decides.
func (t *legacyTable) decides(j traffic, target []byte) verdict {
	if name := targetName(target); name != "" {
		var o outcome
		o.target(name)
		return o.verdict
	}
	switch to := targetVerdict(target); {
	case to == -1-nl.NFDrop:
		return drops
	case to == -1-nl.NFAccept:
		return accepts
	case to == xtReturn:
		return returns
	case to >= 0 && !t.seen[to]:
		if v := t.through(j, to, -1); v != returns {
			return v
		}
	}
	return undecided
}
