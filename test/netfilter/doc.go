// Package netfilter compares the output of `weir import` with netfilter itself. The source rules
// run in a network namespace, the imported rules in the user-space engine, and both evaluate the
// same random packets.
//
// A packet comes in over a TUN device, or leaves through a raw socket. Chains after all others
// report the packets that reach them, by NFLOG, before the write returns. So the verdict of each
// packet is known at once.
package netfilter
