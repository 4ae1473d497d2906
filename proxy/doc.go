// Package proxy gives other programs a dialer: SOCKS5 and HTTP on one port.
//
//	s := &proxy.Server{Dial: dialer.DialContext}
//	l, err := net.Listen("tcp", "127.0.0.1:1080")
//	...
//	err = s.Serve(l)
//
// The first byte that a client sends says what it speaks. SOCKS5 (RFC 1928) has
// CONNECT and UDP ASSOCIATE, with user and password (RFC 1929) if [Server.Users]
// is set. HTTP has CONNECT and plain requests with an absolute URL. Names are
// handed to the dialer as they come: the proxy never resolves one itself, so that
// the dialer can race addresses, families and answers.
//
// # Who may use it
//
// Without users, Serve refuses every address but loopback: a proxy that anyone can reach is used by
// anyone. A user's password is kept as its bcrypt hash. Wrong ones make their sender wait.
//
// A client of another host does not reach this host's loopback, link-local and own addresses, nor a
// cloud's metadata service, if [ControlContext] is the dialer's and [Server.LocalTargets] is not
// set. Connections to servers are never shared between clients or users.
//
// # What it costs
//
// Data is moved by splice(2), inside the kernel; a connection that is silent holds
// two sockets and two parked goroutines and neither buffer nor pipe.
//
// # How connections end
//
// One side's end of data is passed on while the other direction goes on. A
// connection on which nothing has moved for [Server.IdleTimeout] is closed.
// [Server.Shutdown] stops accepting and lets connections finish until its context
// ends.
//
// # Not done
//
// SOCKS4, SOCKS5 BIND, and fragments of UDP datagrams are refused.
package proxy
