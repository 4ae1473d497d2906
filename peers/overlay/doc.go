// Command overlay compares package overlay with wireguard-go and with Tailscale's fork of it, each
// in namespaces of its own, in interleaved rounds, and prints Markdown tables. It needs root,
// iperf3 and ethtool.
//
//	ns A: iperf3 client -- tunnel 10.99.0.1 -- node A :51820 -- veth 10.98.0.1/24
//	                                                              |
//	ns B: iperf3 server -- tunnel 10.99.0.2 -- node B :51820 -- veth 10.98.0.2/24
//
// Both ends and iperf3 share the CPUs of the machine, so the CPU time for a byte decides.
package main
