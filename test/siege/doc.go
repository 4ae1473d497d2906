// Command siege attacks a host behind Weir and reports what legitimate clients lost.
//
//	outside  eth0 ------ eth0  host  === pods 10.88.0.0/24
//	10.66.0.2, .3              10.66.0.1
//
// Each scenario runs in namespaces of its own, with legitimate work before and during an attack:
// new TCP connections and UDP questions in both directions, through a published port and out of a
// pod that is masqueraded, and connections that are open all the time. Where netfilter can do the
// same, an nft rule set stands in the same place for comparison, and no firewall at all.
//
// A scenario is a value in scenarios.go; the next one costs ten lines. The exit status is 1 when a
// bar is missed.
package main
