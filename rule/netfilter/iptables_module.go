package netfilter

import (
	"slices"
	"strings"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// ratesOfSources is why rates of single sources are not carried over.
const ratesOfSources = "its table belongs to all rules that name it, here each rule has rates of " +
	"its own: write `limit-rate N/s src-addr` by hand into the rule that lets connections begin"

// connections is why counts of connections are not carried over.
const connections = "a rule that counts connections is `limit src-addr N` on the rule that lets " +
	"them begin; it counts all IPv6 sources of a /64 as one"

// moduleProblems is why the matches of modules are not carried over.
var moduleProblems = map[string]string{
	"hashlimit": ratesOfSources,
	"recent": "lists of recent addresses are not part of the rules; `limit-rate N/m src-addr` on " +
		"the rule that lets connections begin bounds how many a source begins, and a program " +
		"such as fail2ban can fill a table",
	"connlimit": connections,
	"owner":     "the socket of a packet is not looked up; filter by port or by pod",
	"cgroup":    "the socket of a packet is not looked up; filter by port or by pod",
	"mac":       "rules are about IP, not about Ethernet addresses",
	"mark":      "marks of netfilter are not seen",
	"connmark":  "marks of netfilter are not seen",
	"string":    "the payload is not searched",
	"u32":       "the payload is not searched",
	"bpf":       "the payload is not searched",
	"time":      "rules do not match the time of day; switch a set with a timer: weir fw set",
	"physdev":   "ports of a bridge are not interfaces of the rules",
	"policy":    "whether a packet came through IPsec is not known at the hook",
	"helper":    "there are no helpers: a data connection needs a rule of its own",
	"pkttype":   "the type of a frame is not known; --dst-type asks for the address",
	"tcpmss":    "TCP options are not matched",
	"quota":     "rules have no quota",
	"connbytes": "rules do not look at what a flow has sent",
	"socket":    "the socket of a packet is not looked up",
	"geoip":     "load the prefixes of a country into a table",
	"eui64":     "rules are about IP, not about Ethernet addresses",
	"ah":        extensionHeaders, "dst": extensionHeaders, "frag": extensionHeaders,
	"hbh": extensionHeaders, "ipv6header": extensionHeaders, "rt": extensionHeaders,
	"srh": extensionHeaders,
}

const extensionHeaders = "extension headers are not matched"

// modules are the matches that are read. Without an option they ask nothing that -p does not say,
// but for rpfilter and limit, or iptables refuses them.
var modules = []string{"addrtype", "comment", "conntrack", "dscp", "esp", "hl", "icmp", "icmp6",
	"icmpv6", "ipv6-icmp", "iprange", "length", "limit", "mh", "multiport", "rpfilter", "sctp",
	"set", "state", "statistic", "tcp", "ttl", "udp", "udplite"}

// useModule reads -m. A module such as socket is a condition also without an option.
func (p *ruleParser) useModule(name string) {
	p.module = name
	if why, ok := moduleProblems[name]; ok {
		p.fail("-m %s: %s", name, why)
	} else if !slices.Contains(modules, name) {
		p.fail("the match %s has no equivalent in rules", name)
	}
	switch name {
	case "rpfilter":
		p.entry.clauses = append(p.entry.clauses, rule.Clause{{Op: op.CondVerRevPath}})
	case "limit":
		p.limited()
	}
}

// unknown leaves the rule out for an option that is not read.
func (p *ruleParser) unknown(w string) {
	why, ok := moduleProblems[p.module]
	switch {
	case ok:
		p.fail("-m %s: %s", p.module, why)
	case p.module != "" && strings.HasPrefix(w, "-"):
		p.fail("%s of the match %s has no equivalent in rules", w, p.module)
	default:
		p.fail("%s is not understood", w)
	}
	for len(p.words) > 0 && p.words[0] != "!" && !strings.HasPrefix(p.words[0], "-") {
		p.words = p.words[1:]
	}
}
