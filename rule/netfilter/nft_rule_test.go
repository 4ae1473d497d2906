package netfilter

import (
	"slices"
	"strings"
	"testing"
)

// nftRules is a ruleset with a chain at input that drops, and one of type nat, in which the rules
// are.
func nftRules(chain string, expressions ...string) string {
	text := `{"nftables": [{"table": {"family": "ip", "name": "t"}},
		{"chain": {"family": "ip", "table": "t", "name": "in", "type": "filter",
			"hook": "input", "prio": 0, "policy": "drop"}},
		{"chain": {"family": "ip", "table": "t", "name": "pre", "type": "nat",
			"hook": "prerouting", "prio": -100, "policy": "accept"}}`
	for _, e := range expressions {
		text += `, {"rule": {"family": "ip", "table": "t", "chain": "` + chain +
			`", "expr": [` + e + `]}}`
	}
	return text + "]}"
}

// TestChainsOfNAT: what such a chain refuses is named, and what it accepts is not: that continues
// at the other chains.
func TestChainsOfNAT(t *testing.T) {
	const from = `{"match": {"op": "==", "left": {"payload": {"protocol": "ip",
		"field": "saddr"}}, "right": "192.0.2.1"}}, `
	for verdict, left := range map[string]bool{`{"drop": null}`: true, `{"accept": null}`: false,
		`{"return": null}`: false} {
		r, err := Import([]Source{{"f", nftRules("pre", from+verdict)}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, m := range r.Remarks {
			found = found || m.Effect == EffectPasses && strings.Contains(m.Why, "type nat")
		}
		if r.Complete() == left || found != left {
			t.Errorf("%s: remarks %+v", verdict, r.Remarks)
		}
	}
}

// TestVerdictMapsOfStates: elements of one verdict become one rule if they differ in the state
// alone.
func TestVerdictMapsOfStates(t *testing.T) {
	state := func(state, card, verdict string) string {
		return `[{"concat": ["` + state + `", "` + card + `"]}, {"` + verdict + `": null}]`
	}
	text := nftRules("in", `{"vmap": {"key": {"concat": [{"ct": {"key": "state"}},
		{"meta": {"key": "iifname"}}]}, "data": {"set": [`+state("established", "eth0", "accept")+
		","+state("new", "eth1", "accept")+`]}}}`)
	r, err := Import([]Source{{"f", text}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Rules.Rules {
		if line := x.Text(); strings.Contains(line, "eth0") &&
			(strings.Contains(line, "keep-state") || strings.Contains(line, "record-state")) {
			t.Errorf("a new flow of eth0 is accepted:\n%s", r.Text)
		}
	}
	if !strings.Contains(r.Text, "eth1") {
		t.Errorf("no rule for eth1:\n%s", r.Text)
	}
}

// TestStatementsBeforeVerdicts: a rule that is left out because of a statement that changes no
// verdict still has one of its own.
func TestStatementsBeforeVerdicts(t *testing.T) {
	const flow = `{"flow": {"op": "add", "flowtable": "@f"}}`
	for rule, effect := range map[string]Effect{flow: EffectNone,
		flow + `, {"accept": null}`: EffectRefuses} {
		r, err := Import([]Source{{"f", nftRules("in", rule)}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, m := range r.Remarks {
			found = found || m.Effect == effect && strings.HasPrefix(m.Text, "flow")
		}
		if !found || r.Complete() != (effect == EffectNone) {
			t.Errorf("%s: remarks %+v", rule, r.Remarks)
		}
	}
}

// TestProbabilityOfGoto: a packet draws once, though the rule becomes two.
func TestProbabilityOfGoto(t *testing.T) {
	r, err := Import([]Source{{"f", filter(":C - [0:0]\n-A INPUT -m statistic --mode random " +
		"--probability 0.5 -g C\n-A INPUT -j DROP\n-A C -p tcp -j ACCEPT")}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	draws := 0
	for _, x := range r.Rules.Rules {
		if x.Prob != 0 {
			draws++
		}
	}
	if draws != 1 {
		t.Errorf("%d rules draw:\n%s", draws, r.Text)
	}
}

// TestNetmaskOfSets: an ipset with a netmask matches all addresses of each network.
func TestNetmaskOfSets(t *testing.T) {
	r, err := Import([]Source{{"f", "create bad hash:ip family inet hashsize 1024 maxelem 65536 " +
		"netmask 24\nadd bad 10.1.2.0\n" +
		filter("-A INPUT -m set --match-set bad src -j DROP")}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Text, "10.1.2.0/24") || !r.Complete() {
		t.Errorf("%v\n%s", r.Remarks, r.Text)
	}
	r, err = Import([]Source{{"f", "create bad hash:ip family inet bitmask 255.255.255.0\n" +
		"add bad 10.1.2.0\n" + filter("-A INPUT -m set --match-set bad src -j DROP")}}, Options{})
	if err != nil || r.Complete() {
		t.Errorf("a bitmask: %v, %+v", err, r)
	}
}

// TestPortsOfAnyProtocol: rules know the ports of some protocols. A remark says that a rule of nft
// is about others, too.
func TestPortsOfAnyProtocol(t *testing.T) {
	const port = `{"match": {"op": "==", "left": {"payload": {"protocol": "th",
		"field": "dport"}}, "right": 5001}}, `
	of := func(protocols string) string {
		return `{"match": {"op": "==", "left": {"meta": {"key": "l4proto"}},
			"right": {"set": [` + protocols + `]}}}, `
	}
	for rule, effect := range map[string]Effect{
		port + `{"drop": null}`:                                  EffectPasses,
		port + `{"accept": null}`:                                EffectRefuses,
		of(`"tcp", "dccp"`) + port + `{"drop": null}`:            EffectPasses,
		of(`"tcp", "sctp"`) + port + `{"drop": null}`:            "",
		of(`"tcp", "dccp"`) + `{"drop": null}`:                   "",
		port + of(`"udp"`) + `{"accept": null}`:                  "",
		strings.Replace(port, "th", "tcp", 1) + `{"drop": null}`: "",
	} {
		r, err := Import([]Source{{"f", nftRules("in", rule)}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		found := Effect("")
		for _, m := range r.Remarks {
			if m.Left && strings.Contains(m.Why, "such as DCCP") {
				found = m.Effect
			}
		}
		if found != effect || r.Complete() != (effect == "") {
			t.Errorf("%s: %+v", rule, r.Remarks)
		}
	}
}

// TestCountsOfConnections: what is suggested instead of a count says what counts as a source.
func TestCountsOfConnections(t *testing.T) {
	text := nftRules("in", `{"ct count": {"val": 20, "inv": true}}, {"drop": null}`)
	r, err := Import([]Source{{"f", text}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(r.Remarks, func(m Remark) bool {
		return strings.Contains(m.Why, "all IPv6 sources of a /64 as one")
	}) {
		t.Errorf("remarks %+v", r.Remarks)
	}
}

// TestAnswersOfOneFamily: an answer of ICMP is for packets of its family alone. nft does not list
// that as a condition. Packets of the other one come to the rules behind.
func TestAnswersOfOneFamily(t *testing.T) {
	const accepts = `{"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "ah"}},
		{"accept": null}`
	for answer, want := range map[string]string{
		`{"reject": {"type": "icmpv6", "expr": "port-unreachable"}}`: "unreach6 port ip6 from any",
		`{"reject": {"type": "icmp", "expr": "host-unreachable"}}`:   "unreach host ip4 from any",
	} {
		text := strings.ReplaceAll(nftRules("in", answer, accepts), `"family": "ip"`,
			`"family": "inet"`)
		r, err := Import([]Source{{"f", text}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(r.Text, want) || !strings.Contains(r.Text, "allow ah from any") {
			t.Errorf("%s: want %q, and the rule behind:\n%s", answer, want, r.Text)
		}
	}
}
