// Package netfilter reads rules of netfilter's front ends and writes equivalent rules of Weir. It
// reads iptables-save, ip6tables-save, ipset save, `nft -j list ruleset` and the files of ufw. It
// does no I/O: the input is text, the output a rule file and remarks. docs/import.md lists what is
// converted and which differences remain.
//
// Each format has a reader. All readers produce the same kind of chains, whose rules consist of
// conditions of package rule, the conntrack states that the rule tests, and a verdict. A rule that
// a reader cannot express gets a problem and is left out as a whole, because with some conditions
// missing it would be another rule.
//
// The writer puts the chains in this order:
//
//	in   prerouting, then input if the packet is for this host, else it passes
//	out  forward if the packet came from an interface, else output; then postrouting
//
// So the forward chains decide about a forwarded packet once, when both of its interfaces are
// known. Each chain with a hook is followed by its own copies of the chains that it jumps to. Jumps
// lead forward only.
//
// # States
//
// Netfilter tracks every flow that passes, and rules test the conntrack state of a packet. In Weir,
// rules make states, and check-state passes packets of a state. The writer tracks which conntrack
// states can still reach a rule (kinds.go). A rule that allows new flows makes a state. If packets
// of known flows are certainly accepted, a check-state does this, as early as possible without
// changing a verdict (safe.go).
package netfilter
