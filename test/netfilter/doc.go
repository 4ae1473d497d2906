// Package netfilter compares what `weir import` writes with netfilter itself: the rules of the
// source run in a network namespace, the imported ones in the user-space engine, and random packets
// meet both.
//
// A packet comes in over a TUN device, or leaves through a raw socket. Chains behind all others
// report what got that far, by NFLOG, before the write returns. So every packet has its verdict at
// once.
package netfilter
