// Package eyeballs dials by name the way Happy Eyeballs asks for: RFC 8305, and the
// draft of version 3. A slow, dead or lying piece on the road (a family, an
// address, a DNS server, a lost packet, a TLS server that stalls) delays a dial by
// the short time that the standards allow, and the next dial not at all.
//
//	d := &eyeballs.Dialer{Timeout: 10 * time.Second}
//	client := &http.Client{Transport: &http.Transport{DialContext: d.DialContext}}
//
// A [Dialer] takes the place of [net.Dialer] wherever a DialContext function is
// wanted.
//
// # What happens in a dial
//
// A literal address goes straight to net.Dialer. For a name, HTTPS (if
// [Dialer.HTTPS] is set), AAAA and A are asked for at the same time; types that are
// of no use on this host are not asked for. The first attempt starts when the
// preferred family has answered, or 50 ms after the first address is known.
// Attempts follow each other after 250 ms, or what the round-trip time of earlier
// connections suggests, and at once after a failure; families take turns; late
// answers join in. No attempt is given up while the race runs. The first
// connection wins, or, with [Dialer.TLS], the first finished handshake. When
// DialContext returns, everything it started has ended.
//
// # What is remembered
//
// Per destination: the last winner, round-trip times, and which addresses kept a
// dial waiting. Those are tried last for a minute; then everything is tried in
// the usual order again, so that a repaired path comes back into use. The memory
// is emptied when the addresses of this host change. See [History].
//
// # Errors
//
// A failed dial returns a [*net.OpError] that wraps an [*Error], which lists every
// question and every attempt with its stage, cause and time. [errors.Is] and
// [errors.As] see the causes of all attempts.
//
// # Parts
//
// The decisions are made by a pure state machine in eyeballs/race. eyeballs/dns is
// the resolver, eyeballs/rfc6724 the sort, eyeballs/nat64 and eyeballs/svcb the
// formats. This package is the thin runner around them. None reaches anything but
// the standard library and golang.org/x/net.
//
// # Limits
//
// QUIC is not raced. DNS answers are not authenticated. A path that loses large
// packets only after the handshake is beyond what a dial can see.
package eyeballs
