// Package dns is a stub resolver made for racing. It sends several questions about one name at
// once, from one socket, and delivers each answer when it comes instead of waiting for all of them.
//
// # Configuration
//
// It reads /etc/resolv.conf (nameserver, search, domain, and the options ndots, timeout, attempts,
// rotate, edns0, trust-ad, single-request, single-request-reopen, use-vc, no-aaaa), /etc/hosts, and
// the hosts line of /etc/nsswitch.conf. It checks the files for changes at most once a second. A
// nameserver may be written [address]:port, as in OpenBSD. Sources of nsswitch.conf that only the C
// library knows (mdns, ldap, ...) are queried through [net.DefaultResolver], for all types
// together: that answer comes when the slowest family has answered.
//
// # Queries
//
// All questions go to the first server back to back. Each further server gets them [ServerDelay]
// later, or at once when one fails. After the last server, the open questions are sent again after
// one second, two, and four. So two lost packets cost about one second, where the usual timeout
// costs five. The first answer counts, from any server and to any transmission. Everything ends
// after timeout times attempts of resolv.conf.
//
// An answer counts only if it comes from the server's address and port to the resolver's, repeats
// id, type and name, and is well formed. Anything else is counted in [Stats] and ignored. A query
// has random letter cases in its name. A server that does not repeat them is asked over TCP, and
// any case counts only if it does not answer there. After ten wrong answers from its address, a
// server is used over TCP only. A truncated answer is repeated over TCP. A server that does not
// understand EDNS(0) gets queries without it.
//
// # Cache
//
// Answers are kept for their TTL, at most one hour. The absence of a record is kept for as long as
// the zone allows (RFC 2308), at most five minutes. Failures are not kept. The cache is emptied
// when resolv.conf changes and by [Resolver.Flush].
//
// # Limits
//
// There is no DNSSEC validation and no DNS over TLS or HTTPS: answers are as trustworthy as the
// path to the server. The resolver does not wait for answers after the caller's context has ended.
package dns
