// Package netfilter reads the rules of netfilter's front ends and writes rules of Weir that mean
// the same: iptables-save, ip6tables-save, ipset save, `nft -j list ruleset` and the files of ufw.
// It is pure: text comes in, a rule file and remarks go out. docs/import.md says what is carried
// over, and which differences remain.
//
// Each form has its reader, which makes chains of the same kind: a list of conditions that package
// rule has, the conntrack states that a rule asks for, and a verdict. A rule that a reader cannot
// express has a problem, and is left out as a whole: half of its conditions would be another rule.
//
// The writer puts the chains behind each other:
//
//	in   prerouting, then input if the packet is for this host, else it passes
//	out  forward if the packet came from an interface, else output; then postrouting
//
// So a packet that passes through is decided by the forward chains once, when both of its
// interfaces are known. Each chain with a hook is followed by its own copies of the chains that it
// jumps to. Jumps lead forward only.
//
// # States
//
// Netfilter remembers every flow that passes, and rules ask for the kind of a packet. Weir's rules
// make states, and check-state passes what belongs to one. The writer follows which kinds can still
// reach a rule (kinds.go). A rule that lets a flow begin makes a state. Where known flows are
// accepted for sure a check-state does it, as early as no verdict changes (safe.go).
package netfilter
