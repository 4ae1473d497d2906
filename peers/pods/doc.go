// Command pods compares Weir's path to and from containers with plain routing, Debian's CNI
// plugins and Weir's own programs without bpf_redirect_peer.
//
//	go run ./pods [-rounds 15] [-slice 150ms] [-only remote|local|published|many]
//		[-weir ../bin/weir] [-pods 1000]
//
// It needs root, two processors, nft, iptables and the plugins in /usr/lib/cni (Debian: nftables,
// iptables, containernetworking-plugins). Every variant has a topology of its own, in throw-away
// namespaces. All exist at the same time, and short slices of all of them run in shuffled order,
// round after round. A ratio is the median of those of one round. A transaction is one byte there
// and one byte back over one TCP connection, by two threads that do nothing else. A request is a
// connection, one byte there and back, and its end.
//
// The part many runs a whole agent, to which the pods come by the CNI plugin.
//
// The rules are a hundred that do not match, behind check-state and before one that allows and
// keeps a state; for plain routing the same in nftables with conntrack.
package main
