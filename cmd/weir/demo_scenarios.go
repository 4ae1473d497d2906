package main

import (
	"fmt"
	"strings"

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
		"\nClients make real requests. Then the pod job is attached again with a label, which "+
			"puts it\ninto the table of that label:\n\n")
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
Clients make real requests through the tunnel. The rules of both hosts evaluate them:

`, indent(r.File))
	printVisits(c, r.Visits)
	fmt.Fprint(c.out, "\nThe left host's peer (weir peer list):\n\n")
	printPeers(c, r.Peers)
	fmt.Fprint(c.out, "\nA capture on the wire between the two hosts has seen meanwhile:\n\n")
	for _, line := range r.Wire.Sample {
		fmt.Fprintf(c.out, "  %s\n", line)
	}
	fmt.Fprintf(c.out,
		"  ...\n  WireGuard %d packets, %d bytes; ARP and neighbour discovery %d; anything else "+
			"%d; readable answers %d\n",
		r.Wire.WireGuard, r.Wire.Bytes, r.Wire.Neighbors, len(r.Wire.Others), r.Wire.Readable)
}

// printThreeHosts prints the demo's fourth part.
func printThreeHosts(c *call, r *demo.Cluster) {
	fmt.Fprint(c.out, `
4. THREE HOSTS, ONE RULE SET

  job, web === web1  eth1 ------ eth1  db1 === db
                  eth0 \        / eth0
                   eth0 \      / eth1
                          hub, 10.66.0.1

Three hosts run "weir up" without rules, and hub runs the store. Each host joins with one command.
Then the store gives it its addresses, its keys and the other hosts:

`)
	printCommands(c, r.Join)
	fmt.Fprint(c.out,
		"\nThe rules of examples/cluster. Each host has those of its scopes, merged by "+
			"number:\n")
	for _, f := range r.Files {
		fmt.Fprintf(c.out, "\n%s, for %s:\n\n%s", f.Name, f.Scope, indent(f.Text))
	}
	fmt.Fprintln(c.out)
	printCommands(c, r.Load)
	fmt.Fprint(c.out,
		"\nNow a version with a mistake is on trial: its rule 20 denies packets to the "+
			"database. Meanwhile\ndb1 is cut off from the store. It cannot hear a confirmation, "+
			"so fw confirm refuses:\n\n")
	printCommands(c, r.Trial)
	fmt.Fprint(c.out, "\nEach host reverts on its own, db1 too. On db1:\n\n")
	printCommands(c, r.CutOff)
	fmt.Fprint(c.out,
		"\nClients make real requests before, during and after the trial. The tables of labels "+
			"contain\nthe containers of all hosts:\n\n")
	printVisits(c, r.Visits)
}

// printCommands prints commands with the host on which they were given.
func printCommands(c *call, all []demo.Command) {
	for _, one := range all {
		fmt.Fprintf(c.out, "  %s# %s\n", one.Host, one.Command)
		if one.Printed != "" {
			fmt.Fprintln(c.out, strings.TrimRight(indent(one.Printed), "\n"))
		}
	}
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
