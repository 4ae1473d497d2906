// Package dns is a stub resolver made for racing: it asks several questions about
// one name at once, from one socket, and hands over each answer in the moment it
// comes instead of waiting for all of them.
//
// # What it honours
//
// /etc/resolv.conf (nameserver, search, domain, and the options ndots, timeout,
// attempts, rotate, edns0, trust-ad, single-request, single-request-reopen,
// use-vc, no-aaaa), /etc/hosts, and the hosts line of /etc/nsswitch.conf. The
// files are looked at again at most once a second. A nameserver may be written
// [address]:port, as OpenBSD has it. Sources of nsswitch.conf that only the C
// library knows (mdns, ldap, ...) are asked through [net.DefaultResolver], for all
// types together: that answer comes when the slowest family has answered.
//
// # How it asks
//
// All questions go to the first server back to back. Each further server gets
// them [ServerDelay] later, or at once when one fails. When all have been asked, the
// questions that are still open are sent again after one second, two, and four,
// so that two lost packets cost about a second where the usual five-second
// timeout costs five. Earlier packets stay welcome: the first answer counts,
// whoever sent it. All ends after timeout times attempts of resolv.conf.
//
// An answer counts only if it comes from the server's address and port to ours,
// repeats id, type and name (in any mix of cases), and is well formed; anything
// else is counted in [Stats] and ignored. Truncated answers are asked for again
// over TCP, a server that does not understand EDNS(0) is asked without.
//
// # The cache
//
// Answers are kept for their TTL, one hour at most; the absence of a record for
// what the zone says (RFC 2308), five minutes at most. Failures are not kept. The
// cache is emptied when resolv.conf changes and by [Resolver.Flush].
//
// # Limits
//
// No DNSSEC validation, no DNS over TLS or HTTPS: answers are as trustworthy as
// the path to the server. No answers are awaited after the caller has gone.
package dns
