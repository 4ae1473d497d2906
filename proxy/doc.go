// Package proxy lets other programs use a dialer, by SOCKS5 and HTTP on one port.
//
//	s := &proxy.Server{Dial: dialer.DialContext}
//	l, err := net.Listen("tcp", "127.0.0.1:1080")
//	...
//	err = s.Serve(l)
//
// The first byte from a client shows which protocol it speaks. SOCKS5 (RFC 1928) has CONNECT and
// UDP ASSOCIATE, with user and password (RFC 1929) if [Server.Users] is set. HTTP has CONNECT and
// plain requests with an absolute URL. The proxy passes names to the dialer unresolved, so that
// the dialer can race addresses, families and answers.
//
// # Who may use it
//
// Without users, Serve accepts only loopback addresses: any host that can reach an open proxy can
// use it. Passwords are stored as bcrypt hashes. After wrong passwords a client must wait.
//
// If the dialer has [ControlContext] and [Server.LocalTargets] is not set, a client on another host
// cannot reach this host's loopback, link-local and own addresses, or a cloud's metadata service.
// Clients and users never share a connection to a server.
//
// # Resources
//
// Data moves by splice(2), inside the kernel. An idle connection takes two sockets and two blocked
// goroutines, and no buffer or pipe.
//
// # How connections end
//
// When one side ends its data, the proxy passes the end on, and the other direction continues. It
// closes a connection on which nothing has moved for [Server.IdleTimeout], and one on which no
// right password has come within [Server.HandshakeTimeout]. [Server.Shutdown] stops accepting and
// lets connections finish until its context ends.
//
// # Limits
//
// The proxy refuses SOCKS4, SOCKS5 BIND, and fragments of UDP datagrams.
package proxy
