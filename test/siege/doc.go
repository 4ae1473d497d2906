// Command siege attacks a host behind Weir and reports what legitimate clients lost.
//
//	outside  eth0 ------ eth0  host  === pods 10.88.0.0/24
//	10.66.0.2, .3              10.66.0.1
//
// Each scenario runs in its own namespaces, with legitimate work before and during an attack. There
// are new TCP connections and UDP queries in both directions, through a published port and from a
// masqueraded pod, and connections that stay open. For comparison the scenario also runs with an
// nft rule set, if netfilter can do the same, and without a firewall.
//
// A scenario is a value in scenarios.go of about ten lines. The exit status is 1 if a limit is
// exceeded.
package main
