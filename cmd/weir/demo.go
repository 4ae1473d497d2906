package main

import (
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/weirnet/weir/agent/demo"
	"github.com/weirnet/weir/internal/tty"
)

func demoCommand(c *call) action {
	asJSON := c.json("")
	return func() error {
		if os.Geteuid() != 0 { // before it says what it makes
			return c.failed(fmt.Errorf("make network namespaces: %w", fs.ErrPermission))
		}
		self, err := os.Executable()
		if err != nil {
			return c.failed(err)
		}
		store, missing := findStore()
		if missing != nil {
			fmt.Fprintln(c.stderr, "weir: weir-store is missing, so the fourth part is left out: "+
				"run make build")
		}
		fmt.Fprintln(c.stderr,
			"weir: making up to 15 namespaces, six nodes, servers and clients; this takes up to "+
				"half a minute")
		r, err := demo.Run(c.ctx, self, store)
		if err != nil {
			return c.failed(err)
		}
		if *asJSON {
			if err := printJSON(c.out, r); err != nil {
				return err
			}
		} else {
			printDemo(c, r)
		}
		if len(r.Wrong) > 0 {
			return c.failed(fmt.Errorf("these results differ from the rules: %s",
				strings.Join(r.Wrong, "; ")))
		}
		return nil
	}
}

func printDemo(c *call, r *demo.Result) {
	fmt.Fprintf(c.out, `
1. A SERVER AND ITS CLIENTS

  client  eth0 ------ eth0  server  eth1 ------ eth0  scanner
  10.77.1.2           10.77.1.1     10.77.2.1         10.77.2.2
  fd77:1::2           fd77:1::1     fd77:2::1         fd77:2::2

The server runs "weir up" with examples/web.rules:

%s
"weir fw %s" added a rule while it ran.
Clients make real requests, one after the other:

`, indent(r.File), r.Added)
	texts := map[uint16]string{}
	for _, rule := range r.Rules {
		texts[rule.Number] = rule.Text
	}
	t := tty.NewTable(c.out, "who", "what", "verdict", "answer", ">rule", "text")
	for _, v := range r.Visits {
		t.Row(v.Who, v.What, verdict(v), v.Answer, v.Rule, texts[v.Rule])
	}
	t.Flush()
	fmt.Fprint(c.out, "\nRules with their counters (weir fw show):\n\n")
	writeRules(c.out, r.Rules)
	fmt.Fprint(c.out, "\nLive states of the server's node (weir fw states):\n\n")
	printStates(c, r.States)
	printContainers(c, r.Containers)
	printTwoHosts(c, r.TwoHosts)
	all := len(r.Visits) + len(r.Containers.Visits) + len(r.TwoHosts.Visits)
	if r.Cluster != nil {
		printThreeHosts(c, r.Cluster)
		all += len(r.Cluster.Visits)
	}
	if len(r.Wrong) == 0 {
		fmt.Fprintf(c.out,
			"\nAll %d answers are as the rules require. The demo has removed all that it made.\n",
			all)
	}
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			b.WriteString("    ")
		}
		b.WriteString(line)
	}
	return b.String()
}
