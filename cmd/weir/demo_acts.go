package main

import (
	"fmt"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/demo"
	"github.com/weirnet/weir/internal/tty"
)

// printContainers prints the demo's second part.
func printContainers(c *call, r *demo.Containers) {
	fmt.Fprintf(c.out, `
2. CONTAINERS

  left === web, client, job

A host runs "weir up" with examples/left.rules, and "weir pod attach" has connected three network
namespaces:

%s
Containers (weir pod list):

`, indent(r.File))
	t := tty.NewTable(c.out, "name", "addresses", "labels")
	for _, p := range r.Pods {
		t.Row(p.Name, join(p.Addrs), labelText(p.Labels))
	}
	t.Flush()
	fmt.Fprint(c.out,
		"\nReal requests. The pod job is attached again with a label, and the table of that "+
			"label has it at once:\n\n")
	printVisits(c, r.Visits)
}

// printTwoHosts prints the demo's third part.
func printTwoHosts(c *call, r *demo.TwoHosts) {
	fmt.Fprintf(c.out, `
3. TWO HOSTS

  web, client, job === left  eth0 ------ eth0  right === shop
                       10.78.0.1         10.78.0.2

The other host runs "weir up" with examples/right.rules; "weir peer add" has connected the two:

%s
Real requests through the tunnel, evaluated by the rules of both hosts:

`, indent(r.File))
	printVisits(c, r.Visits)
	fmt.Fprint(c.out, "\nThe left host's peer (weir peer list):\n\n")
	printPeers(c, r.Peers)
	fmt.Fprint(c.out, "\nMeanwhile, captured on the wire between the two:\n\n")
	for _, line := range r.Wire.Sample {
		fmt.Fprintf(c.out, "  %s\n", line)
	}
	fmt.Fprintf(c.out,
		"  ...\n  WireGuard %d packets, %d bytes; ARP and neighbour discovery %d; anything else "+
			"%d; readable answers %d\n",
		r.Wire.WireGuard, r.Wire.Bytes, r.Wire.Neighbors, len(r.Wire.Others), r.Wire.Readable)
}

func printVisits(c *call, visits []demo.Visit) {
	t := tty.NewTable(c.out, "who", "what", "verdict", "answer", "host", ">rule",
		"text")
	for _, v := range visits {
		t.Row(v.Who, v.What, verdict(v), v.Answer, v.Host, v.Rule, v.Text)
	}
	t.Flush()
}

func verdict(v demo.Visit) string {
	if v.Passed {
		return "passed"
	}
	return "refused"
}

// printPeers prints other nodes as weir peer list does.
func printPeers(c *call, peers []api.Peer) {
	t := tty.NewTable(c.out, "name", "pods", "path", "handshake", ">rtt", ">received",
		">sent", "key", "remarks")
	for _, p := range peers {
		t.Row(p.Name, join(p.Pods), p.Path, handshakeAge(p), rttText(p), p.Received, p.Sent, p.Key,
			peerRemarks(p))
	}
	t.Flush()
}
