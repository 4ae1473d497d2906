package test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
)

// TestStatesAreDeleted: a filter lists some of the states, and deleting them cuts the connections
// of a host that is denied since, and no others.
func TestStatesAreDeleted(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", p.file("etc/weir/rules", `table bad create
add 10 check-state
add 20 deny tcp from table(bad) to any
add 30 allow tcp from any to me 22,23 keep-state
`))
	cut := []*call{dial(t, p.client, p.server, "10.66.0.1:22"),
		dial(t, p.client, p.server, "10.66.0.1:23")}
	stays := dial(t, p.client, p.server, "[fd66::1]:22")
	works := func(what string) {
		t.Helper()
		for _, c := range append([]*call{stays}, cut...) {
			if err := c.exchange(); err != nil {
				t.Errorf("%s, %s: %v", c.name, what, err)
			}
		}
	}
	works("before")
	for filter, want := range map[string]int{"tcp to any 22": 2, "ip6": 1, "rule 30": 3,
		"to any 25": 0, "from table(bad)": 0} {
		var s api.States
		if p.json(&s, "fw", "states", filter); len(s.States) != want {
			t.Errorf("fw states %s: %d states, want %d", filter, len(s.States), want)
		}
	}
	p.weir("fw", "table", "bad", "add", "10.66.0.2")
	works("before their states are deleted")
	for line, want := range map[string]string{"delete": "delete: missing FILTER",
		"drop": "events, not states", "delete in via eth0": `states have no "`} {
		args := append([]string{"fw", "states"}, strings.Fields(line)...)
		if _, stderr, err := p.try(args...); err == nil || !strings.Contains(stderr, want) {
			t.Errorf("fw states %s: %v, %s", line, err, stderr)
		}
	}
	if out := p.weir("fw", "states", "delete", "to", "any", "25"); out != "0 states deleted\n" {
		t.Errorf("nothing to delete: %s", out)
	}
	works("after what was refused")
	var d api.Deleted
	if p.json(&d, "fw", "states", "delete", "from", "table(bad)"); d.Deleted != 2 {
		t.Errorf("%d states are deleted, want 2", d.Deleted)
	}
	if err := stays.exchange(); err != nil {
		t.Errorf("a connection of another host: %v", err)
	}
	for _, c := range cut {
		if err := c.exchangeFor(time.Second); err == nil {
			t.Errorf("%s continues without its state", c.name)
		}
	}
}
