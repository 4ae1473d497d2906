package main

import (
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
)

// listedRules are rules with every column of a listing.
func listedRules() []api.Rule {
	last := time.Unix(1700000000, 0)
	return []api.Rule{
		{Number: 1, Text: "check-state"},
		{Number: 100, Text: "allow tcp from any to me 22 setup keep-state", Packets: 2, Bytes: 168,
			Last: &last},
		{Number: 100, Text: "deny log ip from any to any in recv eth0 // the rest", Packets: 12345,
			Bytes: 7},
		{Number: 700, Set: 5, Disabled: true, Text: "allow udp from any to any limit src-addr 4 :x",
			Packets: 1, Bytes: 99999},
		{Number: 65535, Set: 31, Text: "deny ip from any to any"},
	}
}

// listedStates are states of three protocols.
var listedStates = []api.State{
	{Proto: "tcp", From: "10.0.0.1:22", To: "10.0.0.2:4000", Flow: "default", Rule: 100,
		LeftSeconds: 5.7, Packets: [2]uint64{1, 1}, Bytes: [2]uint64{100, 68}},
	{Proto: "udp", From: "[fd00::1]:53", To: "[fd00::2]:4000", Flow: "x", Rule: 700,
		LeftSeconds: 30, Packets: [2]uint64{100000, 0}, Bytes: [2]uint64{5, 5}},
	{Proto: "gre", From: "10.0.0.1", To: "10.0.0.2", Rule: 100},
}

// TestListing: the columns are those of FreeBSD's ipfw(8), sbin/ipfw/ipfw2.c: a number of five
// digits first, counters as wide as the longest, times as ctime(3) has them, the set, the rule.
func TestListing(t *testing.T) {
	rules, states := listedRules(), listedStates
	for _, c := range []struct {
		name   string
		flags  listFlags
		states []api.State
		want   string
	}{
		{"list", listFlags{}, nil, `00001 check-state :default
00100 allow tcp from any to me 22 setup keep-state :default
00100 deny log ip from any to any in recv eth0 // the rest
65535 deny ip from any to any
`},
		{"show, list -a", listFlags{counters: true}, nil, `00001     0     0 check-state :default
00100     2   168 allow tcp from any to me 22 setup keep-state :default
00100 12345     7 deny log ip from any to any in recv eth0 // the rest
65535     0     0 deny ip from any to any
`},
		{"list -S", listFlags{set: true}, nil, `00001 set 0 check-state :default
00100 set 0 allow tcp from any to me 22 setup keep-state :default
00100 set 0 deny log ip from any to any in recv eth0 // the rest
# DISABLED 00700 set 5 allow udp from any to any limit src-addr 4 :x
65535 set 31 deny ip from any to any
`},
		{"list -t", listFlags{times: true}, nil, `00001                         check-state :default
00100 Tue Nov 14 22:13:20 2023 allow tcp from any to me 22 setup keep-state :default
00100                         deny log ip from any to any in recv eth0 // the rest
65535                         deny ip from any to any
`},
		{"list -T", listFlags{unix: true}, nil, `00001          0 check-state :default
00100 1700000000 allow tcp from any to me 22 setup keep-state :default
00100          0 deny log ip from any to any in recv eth0 // the rest
65535          0 deny ip from any to any
`},
		{"list -c", listFlags{compact: true}, nil, `00001 check-state :default
00100 allow tcp from any to me 22 setup keep-state :default
00100 deny log in recv eth0 // the rest
65535 deny
`},
		{"list -b", listFlags{brief: true}, nil, `00001 check-state :default // ...
00100 allow // ...
00100 deny log // the rest
65535 deny // ...
`},
		{"show -D", listFlags{counters: true, dynamicOnly: true}, states,
			`## Dynamic rules (3 436):
00100      2   168 (5s) STATE tcp 10.0.0.1 22 <-> 10.0.0.2 4000 :default
00700 100000    10 (30s) LIMIT udp fd00::1 53 <-> fd00::2 4000 :x
00100      0     0 (0s) STATE gre 10.0.0.1 0 <-> 10.0.0.2 0 :default
`},
		{"list -D", listFlags{dynamicOnly: true}, states[:1],
			"## Dynamic rules (1 156):\n00100 STATE tcp 10.0.0.1 22 <-> 10.0.0.2 4000 :default\n"},
	} {
		var b strings.Builder
		l := newListing(c.flags, rules, c.states)
		l.rules(&b, nil, rules)
		l.heading(&b, c.states, false)
		l.states(&b, c.states, nil)
		if b.String() != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, b.String(), c.want)
		}
	}
}
