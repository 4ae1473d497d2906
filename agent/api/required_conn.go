package api

import "net/netip"

// RequiredConn is a TCP connection that rules must not refuse. Parts of the node hand it to each
// other; no request and no answer has one.
type RequiredConn struct {
	From netip.Addr // of another host that connects to this one; zero: this host connects
	To   netip.AddrPort
}
