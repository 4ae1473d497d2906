package netfilter

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/rule/netfilter"
)

// TestRandomNft compares random rule sets of nft. WEIR_DECISIONS is how many packets they meet
// together.
func TestRandomNft(t *testing.T) {
	nstest.RequireRoot(t)
	compareRandomSets(t, randomSeeds(t, 2), func(t *testing.T, seed uint64) (*host,
		[]netfilter.Source, *netfilter.Result) {
		r := &randomNft{rand.New(rand.NewPCG(seed, 1))}
		h := newHost(t)
		src, result := importNft(t, listed(t, h, r.text()))
		return h, src, result
	})
}

// importNft imports a rule set without the rules of which the import carries over a part, as
// importWhole does.
func importNft(t *testing.T, text string) ([]netfilter.Source, *netfilter.Result) {
	t.Helper()
	for {
		src := []netfilter.Source{{Name: "random", Text: text}}
		result, err := netfilter.Import(src, ofHost())
		if err != nil {
			t.Fatal(err)
		}
		halves := halfCarried(result)
		if len(halves) == 0 {
			return src, result
		}
		var doc struct {
			Nftables []map[string]map[string]any `json:"nftables"`
		}
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		doc.Nftables = slices.DeleteFunc(doc.Nftables, func(o map[string]map[string]any) bool {
			handle, _ := o["rule"]["handle"].(float64)
			return halves[int(handle)]
		})
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
}

// refusedLine is the number of a line that nft refuses.
var refusedLine = regexp.MustCompile(`(?m)^/dev/stdin:(\d+):`)

// listed returns what nft lists of a rule set without the rules that it refuses, as JSON. The rule
// set is not in force then.
func listed(t *testing.T, h *host, text string) string {
	t.Helper()
	lines := strings.Split(text, "\n")
	for {
		cmd := h.node.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		bad := refusedLine.FindAllSubmatch(out, -1)
		if bad == nil {
			t.Fatalf("nft: %v\n%s", err, out)
		}
		for _, m := range bad {
			n, _ := strconv.Atoi(string(m[1]))
			lines[n-1] = ""
		}
	}
	out, err := h.node.Command("nft", "-j", "list", "table", "inet", "fw").Output()
	if err != nil {
		t.Fatalf("nft: %v", err)
	}
	h.run(t, "nft", "delete", "table", "inet", "fw")
	return string(out)
}

// randomNft makes rule sets of nft that a machine could have.
type randomNft struct{ *rand.Rand }

func (r *randomNft) of(list ...string) string { return list[r.IntN(len(list))] }

func (r *randomNft) text() string {
	var b strings.Builder
	b.WriteString(`table inet fw {
	set four { type ipv4_addr; flags interval
		elements = { 198.51.100.0/25, 203.0.113.1-203.0.113.9 } }
	set six { type ipv6_addr; flags interval; elements = { 2001:db8:f::/49 } }
	set ports { type inet_service; flags interval; elements = { 22, 80, 1000-2000 } }
	map verdicts { type inet_service : verdict; elements = { 22 : accept, 80 : drop } }
`)
	for i := range chains { // a chain has to be there before it is named
		fmt.Fprintf(&b, "\tchain c%d {\n", chains-1-i)
		for range r.IntN(5) {
			fmt.Fprintf(&b, "\t\t%s\n", r.rule(chains-1-i))
		}
		b.WriteString("\t}\n")
	}
	for _, hook := range []string{"input", "forward", "output"} {
		fmt.Fprintf(&b, "\tchain %s {\n\t\ttype filter hook %s priority 0; policy %s\n", hook, hook,
			r.of("accept", "drop"))
		for range r.IntN(8) {
			fmt.Fprintf(&b, "\t\t%s\n", r.rule(-1))
		}
		b.WriteString("\t}\n")
	}
	return b.String() + "}\n"
}

// rule returns a rule of a chain, -1 for that of a hook.
func (r *randomNft) rule(chain int) string {
	// nft refuses other families or protocols in the same rule
	family, proto := r.of("ip", "ip", "ip6"), r.of("tcp", "tcp", "udp", "icmp")
	var words []string
	for _, kind := range r.Perm(6)[:r.IntN(4)] { // nft lists two ranges of a field wrong
		words = append(words, r.match(kind, family, proto))
	}
	if r.IntN(3) == 0 {
		words = append(words, "ct state "+r.of("established,related", "established", "new",
			"!= new", "invalid", "{ new, established }", "!= { established, related }", "related"))
	}
	if r.IntN(4) == 0 {
		words = append(words, "counter")
	}
	return strings.Join(append(words, r.verdict(chain, strings.Join(words, " "))), " ")
}

func (r *randomNft) verdict(chain int, conditions string) string {
	targets := []string{"accept", "accept", "accept", "drop", "drop", "return", "reject",
		"reject with icmpx admin-prohibited"}
	for i := chain + 1; i < chains; i++ {
		targets = append(targets, fmt.Sprintf("jump c%d", i), fmt.Sprintf("goto c%d", i))
	}
	if r.IntN(6) == 0 && conditions == "" {
		return r.of("tcp dport vmap @verdicts", "tcp dport vmap { 22 : accept, 1000-2000 : drop }",
			"ct state vmap { established : accept, related : accept, new : drop }",
			"meta l4proto vmap { tcp : accept, icmp : drop, udp : return }",
			"ip saddr vmap { 198.51.100.0/24 : drop, 10.0.0.0/8 : accept }",
			`iifname vmap { "eth0" : drop, "eth1" : accept }`,
			"ip saddr . tcp dport vmap { 198.51.100.7 . 22 : accept, 10.0.0.9 . 80 : drop }")
	}
	return targets[r.IntN(len(targets))]
}

// match returns a condition on packets of a family, or of a protocol.
func (r *randomNft) match(kind int, family, proto string) string {
	not := ""
	if r.IntN(4) == 0 {
		not = "!= "
	}
	switch kind {
	case 0:
		return r.ofFamily(family, not)
	case 1:
		return r.ofProtocol(family, proto, not)
	case 2:
		return r.of("iifname", "oifname") + " " + not + r.of(`"eth0"`, `"eth*"`, `"docker0"`,
			`{ "eth0", "eth1" }`)
	case 3:
		return "meta l4proto " + not + r.of(proto, "{ tcp, udp }", "{ icmp, ipv6-icmp }")
	case 4:
		return "fib " + r.of("daddr", "daddr", "saddr") + " type " + not + r.of("local",
			"{ local, multicast }", "broadcast", "unicast", "multicast")
	}
	return r.of("meta length > 500", "meta length <= 64",
		"meta nfproto "+map[string]string{"ip": "ipv4", "ip6": "ipv6"}[family])
}

func (r *randomNft) ofFamily(family, not string) string {
	side := r.of("saddr", "daddr")
	if family == "ip6" {
		return r.of("ip6 saddr . ip6 daddr { 2001:db8:f::7 . 2001:db8::1 }", "ip6 "+side+" "+not+
			r.of("2001:db8:f::/48", "2001:db8::1", "@six", "{ 2001:db8:f::/49, fd00:17::/64 }"),
			"ip6 hoplimit >= 5", "ip6 dscp "+not+"ef",
			"ip6 nexthdr { tcp, udp }")
	}
	return r.of("ip saddr . ip daddr { 198.51.100.7 . 192.0.2.1 }", "ip "+side+" "+not+
		r.of("198.51.100.0/24", "203.0.113.0/26", "192.0.2.1", "{ 10.0.0.0/8, 198.51.100.3 }",
			"198.51.100.3-198.51.100.200", "@four"), "ip "+side+" "+not+
		"{ 198.51.100.0/24, 192.0.2.1-192.0.2.9 }", "ip ttl < 4", "ip ttl "+not+"64",
		"ip length "+not+"0-100", "ip dscp "+not+r.of("ef", "af11", "{ cs0, ef }"),
		"ip protocol "+not+"{ tcp, udp }")
}

func (r *randomNft) ofProtocol(family, proto, not string) string {
	port := r.of("sport", "dport")
	switch {
	case proto == "icmp" && family == "ip6":
		return "icmpv6 type " + not + r.of("echo-request", "{ packet-too-big, echo-reply }",
			"destination-unreachable")
	case proto == "icmp":
		return "icmp type " + not + r.of("echo-request", "time-exceeded",
			"{ echo-request, destination-unreachable }")
	case proto == "tcp" && r.IntN(3) == 0:
		return "tcp flags " + r.of("& (fin|syn|rst|ack) == syn", "& (fin|syn|rst|ack) != syn",
			"syn", "& (fin|syn) == fin|syn", "& (fin|syn|rst|psh|ack|urg) == 0x0",
			"syn / syn,ack", "!= syn", "== syn", "! syn", "{ syn, syn|ack }")
	case r.IntN(3) == 0:
		return proto + " " + port + " " + r.of("< 1024", ">= 1024", "> 22", "<= 80")
	case r.IntN(5) == 0:
		return "iifname . " + proto + " dport { eth0 . 22, eth1 . 80 }"
	}
	return proto + " " + port + " " + not + r.of("22", "80", "{ 22, 80, 443 }", "1024-65535",
		"@ports", "{ 1-1000, 2000-3000 }")
}
