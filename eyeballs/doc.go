// Package eyeballs dials host names with Happy Eyeballs: RFC 8305 and the draft of version 3 (HEv3,
// draft-ietf-happy-happyeyeballs-v3). A part of the path may be slow, dead or faulty: a family, an
// address, a DNS server, a lost packet, a TLS server that stalls. It delays a dial only by the
// short time that the standards allow, and does not delay the next dial.
//
//	d := &eyeballs.Dialer{Timeout: 10 * time.Second}
//	client := &http.Client{Transport: d.Transport()}
//
// A [Dialer] replaces [net.Dialer] wherever a DialContext function is needed. For HTTP,
// [Dialer.Transport] makes a transport with HTTP/2 and proxies, like that of net/http.
//
// # What happens in a dial
//
// A literal address is passed to net.Dialer. For a name, the dialer queries HTTPS (if
// [Dialer.HTTPS] is set), AAAA and A at the same time, except types that this host cannot use. The
// first attempt starts when the preferred family has answered, or 50 ms after the first address is
// known. Attempts follow each other after 250 ms, or after a time that the round-trip time of
// earlier connections suggests, and at once after a failure. The families alternate. Addresses of
// late answers are added. No attempt is cancelled while the race runs. The first connection wins,
// or, with [Dialer.TLS], the first finished handshake. When DialContext returns, everything it
// started has ended.
//
// # What is remembered
//
// Per destination: round-trip times, and which addresses kept a dial waiting. Among equal addresses
// the one with the shortest round-trip time comes first (RFC 8305 section 4). An address that kept
// a dial waiting comes last for a minute. Then the usual order applies again, so that a repaired
// path comes back into use. The memory is emptied when the addresses of this host change. See
// [History].
//
// # Errors
//
// A failed dial returns a [*net.OpError] that wraps an [*Error], which lists every question and
// every attempt with its stage, cause and time. [errors.Is] and [errors.As] see the causes of all
// attempts.
//
// # Parts
//
// A pure state machine, internal/race, makes the decisions. Package dns is the resolver,
// internal/rfc6724 the sort, svcb and internal/nat64 are the formats. This package does the I/O for
// them. All of them import only the standard library and golang.org/x/net.
//
// # Limits
//
// QUIC is not raced. DNS answers are not authenticated. A dial cannot detect a path that loses
// large packets only after the handshake.
package eyeballs
