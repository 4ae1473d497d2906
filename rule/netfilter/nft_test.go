package netfilter

import (
	"strings"
	"testing"
)

// nftMatch is a ruleset with one match, whose packets are dropped.
func nftMatch(match string) string {
	return `{"nftables": [{"table": {"family": "inet", "name": "t"}},
		{"chain": {"family": "inet", "table": "t", "name": "in", "type": "filter",
			"hook": "input", "prio": 0, "policy": "accept"}},
		{"rule": {"family": "inet", "table": "t", "chain": "in", "handle": 7, "expr": [
			{"match": {` + match + `}}, {"drop": null}]}}]}`
}

// TestOperators imports single matches. want is the rule that stands for one.
func TestOperators(t *testing.T) {
	const flags, all = `"left": {"payload": {"protocol": "tcp", "field": "flags"}}`,
		`"left": {"&": [{"payload": {"protocol": "tcp", "field": "flags"}},
			["fin", "syn", "psh", "ack"]]}`
	for _, c := range []struct{ match, want string }{
		{`"op": "!", ` + flags + `, "right": ["fin", "syn"]`,
			"deny tcp from any to any not tcpflags fin not tcpflags syn"},
		{`"op": "!", ` + flags + `, "right": "syn"`,
			"deny tcp from any to any not tcpflags syn"},
		{`"op": "in", ` + flags + `, "right": ["fin", "syn"]`,
			"deny tcp from any to any { tcpflags fin or tcpflags syn }"},
		{`"op": "==", ` + all + `, "right": {"set": ["fin", {"|": ["psh", "ack"]}, "rst"]}`,
			"deny tcp from any to any { tcpflags fin,!syn,!psh,!ack or " +
				"tcpflags !fin,!syn,psh,ack }"},
		{`"op": "!=", ` + all + `, "right": {"set": ["fin", {"|": ["psh", "ack"]}]}`,
			"deny tcp from any to any not tcpflags fin,!syn,!psh,!ack " +
				"not tcpflags !fin,!syn,psh,ack"},
		{`"op": "==", ` + all + `, "right": ["fin", "syn"]`,
			"deny tcp from any to any tcpflags fin,syn,!psh,!ack"},
		{`"op": "!", "left": {"ct": {"key": "state"}},
			"right": ["new", "established", "related"]`,
			"deny tcp from any to any not setup"},
		{`"op": ">", "left": {"payload": {"protocol": "tcp", "field": "dport"}},
			"right": 1024`,
			"deny tcp from any to any 1025-65535"},
	} {
		r, err := Import([]Source{{"stdin", nftMatch(c.match)}}, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.match, err)
			continue
		}
		found := false
		for _, x := range r.Rules.Rules {
			found = found || x.Text() == c.want
		}
		if !found || !r.Complete() {
			t.Errorf("%s: no rule %q in\n%s", c.match, c.want, r.Text)
		}
	}
}

// TestOperatorsLeftOut: what a match with this operator asks, no rule does.
func TestOperatorsLeftOut(t *testing.T) {
	const flags = `"left": {"payload": {"protocol": "tcp", "field": "flags"}}`
	for _, match := range []string{
		`"op": "<", ` + flags + `, "right": 3`,
		`"op": "~", ` + flags + `, "right": "syn"`,
		flags + `, "right": "syn"`,
		`"op": "==", ` + flags + `, "right": "syn"`,
		`"op": "!=", ` + flags + `, "right": {"set": ["syn", {"|": ["syn", "ack"]}]}`,
		`"op": ">", "left": {"payload": {"protocol": "ip", "field": "saddr"}},
			"right": "10.0.0.0"`,
		`"op": ">", "left": {"payload": {"protocol": "ip", "field": "dscp"}}, "right": 3`,
		`"op": ">", "left": {"meta": {"key": "l4proto"}}, "right": "ggp"`,
		`"op": "!", "left": {"meta": {"key": "iifname"}}, "right": "eth0"`,
		`"op": ">", "left": {"ct": {"key": "state"}}, "right": "new"`,
		`"op": ">", "left": {"fib": {"result": "oif", "flags": ["saddr", "iif"]}},
			"right": false`,
		`"op": "==", "left": {"fib": {"result": "oif", "flags": ["saddr", "iif"]}},
			"right": "eth0"`,
		`"op": "!=", "left": {"fib": {"result": "type", "flags": ["daddr", "iif"]}},
			"right": {"set": ["local", "broadcast", "multicast"]}`,
		`"op": "!=", "left": {"payload": {"protocol": "ip6", "field": "nexthdr"}},
			"right": {"set": ["tcp", "udp", "ipv6-icmp"]}`,
		`"op": "==", "left": {"payload": {"protocol": "ip6", "field": "nexthdr"}},
			"right": "ipv6-route"`,
		`"op": ">", "left": {"concat": [{"meta": {"key": "l4proto"}}]},
			"right": {"set": [{"concat": ["tcp"]}]}`,
	} {
		r, err := Import([]Source{{"stdin", nftMatch(match)}}, Options{})
		if err != nil {
			t.Errorf("%s: %v", match, err)
			continue
		}
		if r.Complete() || strings.Contains(r.Text, "\nadd 1000 deny") {
			t.Errorf("%s: carried over:\n%s", match, r.Text)
		}
	}
}

// TestNextHeader: a rule about the next header is carried over with a note: it also matches packets
// in which extension headers come first. One about the protocol has no note.
func TestNextHeader(t *testing.T) {
	for match, noted := range map[string]bool{
		`"op": "==", "left": {"payload": {"protocol": "ip6", "field": "nexthdr"}},
			"right": "tcp"`: true,
		`"op": "==", "left": {"concat": [{"payload": {"protocol": "ip6", "field": "nexthdr"}}]},
			"right": {"set": [{"concat": ["tcp"]}, {"concat": ["udp"]}]}`: true,
		`"op": "==", "left": {"payload": {"protocol": "ip6", "field": "nexthdr"}},
			"right": "ipv6-route"`: false, // left out
		`"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "tcp"`: false,
	} {
		r, err := Import([]Source{{"stdin", nftMatch(match)}}, Options{})
		if err != nil {
			t.Errorf("%s: %v", match, err)
			continue
		}
		const note = "first next header alone"
		n := 0
		for _, m := range r.Remarks {
			if strings.Contains(m.Why, note) && !m.Left && m.Place.Handle == 7 {
				n++
			}
		}
		if noted != (n == 1) || noted && (!r.Complete() || !strings.Contains(r.Text, note)) {
			t.Errorf("%s: remarks %+v", match, r.Remarks)
		}
	}
}

// TestDormantTables: the rules of a table that is dormant are not in force, and are left out. nft
// 1.0.6 writes any word in place of that flag.
func TestDormantTables(t *testing.T) {
	const table, other = `{"family": "inet", "name": "t"`, `{"chain": {"family": "ip", "table": "u",
		"name": "in", "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}}]}`
	for flags, active := range map[string]bool{`"dormant"`: false, `["dormant", "owner"]`: false,
		`"u"`: false, `7`: false, `"owner"`: true, `["owner", "persist"]`: true} {
		text := nftMatch(`"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "tcp"`)
		text = strings.Replace(text, table+"}", table+`, "flags": `+flags+"}", 1)
		text = strings.TrimSuffix(text, "]}") + ", " + other
		r, err := Import([]Source{{"stdin", text}}, Options{})
		if err != nil {
			t.Errorf("%s: %v", flags, err)
			continue
		}
		if got := strings.Contains(r.Text, "deny tcp"); got != active || r.Complete() != active {
			t.Errorf("%s: carried over %v, remarks %+v\n%s", flags, got, r.Remarks, r.Text)
		}
	}
}
