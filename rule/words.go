package rule

import "github.com/weirnet/weir/rule/op"

// The words of the language. What ipfw has and Weir has not is listed with the reason, so that it
// is refused by name.

var actions = map[string]op.Action{
	"allow": op.ActionAllow, "accept": op.ActionAllow, "pass": op.ActionAllow,
	"permit": op.ActionAllow, "deny": op.ActionDeny,
	"drop":   op.ActionDeny,
	"reject": op.ActionReject, "reset": op.ActionReset, "unreach": op.ActionUnreach,
	"unreach6": op.ActionUnreach6,
	"count":    op.ActionCount,
	"skipto":   op.ActionSkipTo, "call": op.ActionCall, "return": op.ActionReturn,
	"check-state": op.ActionCheckState, "pipe": op.ActionPipe, "nat": op.ActionNAT,
	"fwd": op.ActionFwd, "forward": op.ActionFwd,
}

// refused is why a word of ipfw is not taken; the value is a hint.
type refused map[string]string

var refusedActions = refused{
	"divert":   "divert sockets are FreeBSD's; nothing on this system could read them",
	"tee":      "divert sockets are FreeBSD's; \"log\" shows packets without stopping them",
	"netgraph": "netgraph is FreeBSD's",
	"ngtee":    "netgraph is FreeBSD's",
	"queue": "packets are not queued, so there are no weights; \"pipe\" limits flows " +
		"together, tc shapes",
	"sched":      "traffic shaping (dummynet) is not part of the rules; shape with tc",
	"reass":      "fragments follow their first fragment by themselves; leave the rule out",
	"setfib":     "routing tables are chosen by policy routes here",
	"setdscp":    "rules do not change packets",
	"tcp-setmss": "rules do not change packets",
	"setmark":    "rules do not change packets; \"tag\" marks them for later rules",
	"eaction":    "external actions are kernel modules of FreeBSD",
	"nat64lsn":   "external actions are kernel modules of FreeBSD",
	"nat64stl":   "external actions are kernel modules of FreeBSD",
	"nat64clat":  "external actions are kernel modules of FreeBSD",
	"nptv6":      "external actions are kernel modules of FreeBSD",
	"reset6":     "\"reset\" answers IPv4 and IPv6",
	"abort":      "SCTP is refused with \"reject\"",
	"abort6":     "SCTP is refused with \"reject\"",
	"rdr":        "write nat N config with redirect_port, and a rule with nat N",
	"defrag":     "fragments follow their first fragment by themselves; leave the rule out",
}

var refusedOptions = refused{
	"uid":               "the socket of a packet is not looked up; filter by port or by pod",
	"gid":               "the socket of a packet is not looked up; filter by port or by pod",
	"jail":              "jails are FreeBSD's; a container is a pod: \"via pod:NAME\"",
	"sockarg":           "the socket of a packet is not looked up",
	"fib":               "routing tables are chosen by policy routes here",
	"layer2":            "rules are about IP; a frame is not evaluated a second time",
	"MAC":               "rules are about IP; a pod's addresses are already bound to its interface",
	"mac":               "rules are about IP; a pod's addresses are already bound to its interface",
	"mac-type":          "rules are about IP; other frames pass before the rules",
	"src-mac":           "rules are about IP",
	"dst-mac":           "rules are about IP",
	"diverted":          "divert sockets are FreeBSD's",
	"diverted-loopback": "divert sockets are FreeBSD's",
	"diverted-output":   "divert sockets are FreeBSD's",
	"flow-id":           "the flow label of IPv6 is not looked at",
	"flow":              "tables hold addresses; match the parts of the tuple by their own options",
	"ext6hdr": "extension headers are not matched; malformed ones are dropped before " +
		"the rules",
	"ipsec":      "whether a packet came through IPsec is not known at the hook",
	"tcpoptions": "TCP options are not matched",
	"tcpopts":    "TCP options are not matched",
	"tcpmss":     "TCP options are not matched",
	"tcpdatalen": "the length of the TCP data is not matched; iplen is",
	"lookup":     "write src-ip table(NAME) or dst-ip table(NAME)",
	"altq":       "ALTQ is FreeBSD's; shape with tc",
	"untag":      "a tag stays with its packet; choose another tag number",
	"mark":       "\"tagged\" matches what \"tag\" has set",
	"icmpcodes":  "ICMP codes are not matched; icmptypes are",
	"bridged":    "rules are about IP; a frame is not evaluated a second time",
	"tablearg":   "table values can be matched, table(NAME,VALUE), but not used as an argument",
}

var refusedCommands = refused{
	"queue":    refusedActions["queue"],
	"sched":    refusedActions["sched"],
	"sysctl":   "settings live in the configuration file",
	"flowset":  refusedActions["queue"],
	"internal": "it shows FreeBSD's kernel objects",
	"iplist":   "lists are per table here: table NAME add PREFIX",
	"nat64":    refusedActions["nat64lsn"],
	"nptv6":    refusedActions["nptv6"],
}

// switches are what ipfw's enable and disable turn on and off; the value is why one is refused. The
// others concern what Weir does not have, so that either position is fine.
var switches = refused{
	"firewall": "\"set enable N\" and \"set disable N\" switch a set; to stop enforcement " +
		"run weir down",
	"altq":     refusedOptions["altq"],
	"one_pass": "", "debug": "", "verbose": "", "dyn_keepalive": "",
}

// protocolAliases are names of protocols that FreeBSD's /etc/protocols has and others have not.
var protocolAliases = map[string]uint8{"carp": 112, "pfsync": 240}

// code is a named ICMP code of unreach or unreach6.
type code struct {
	name string
	code uint32
}

var codes4 = []code{
	{"net", 0}, {"host", 1}, {"protocol", 2}, {"port", 3}, {"needfrag", 4}, {"srcfail", 5},
	{"net-unknown", 6}, {"host-unknown", 7},
	{"isolated", 8}, {"net-prohib", 9}, {"host-prohib", 10}, {"tosnet", 11}, {"toshost", 12},
	{"filter-prohib", 13},
	{"host-precedence", 14}, {"precedence-cutoff", 15},
}

var codes6 = []code{{"no-route", 0}, {"admin-prohib", 1}, {"address", 3}, {"port", 4}}

// bitName is a named bit (or, for iptos congestion, two).
type bitName struct {
	name string
	bits uint32
}

// TCP flags, as they stand in the header.
const (
	tcpFIN = 0x01
	tcpSYN = 0x02
	tcpRST = 0x04
	tcpPSH = 0x08
	tcpACK = 0x10
	tcpURG = 0x20
)

var (
	tcpFlags = []bitName{{"fin", tcpFIN}, {"syn", tcpSYN}, {"rst", tcpRST}, {"psh", tcpPSH},
		{"ack", tcpACK}, {"urg", tcpURG}}
	fragFlags = []bitName{{"df", op.FragDF}, {"mf", op.FragMF}, {"rf", op.FragRF},
		{"offset", op.FragOffset}}
	ipOptions = []bitName{{"ssrr", op.OptSSRR}, {"lsrr", op.OptLSRR}, {"rr", op.OptRR},
		{"ts", op.OptTS}}
	// congestion is RFC 3168's CE, both bits; it comes first so that it is printed as such.
	tosFlags = []bitName{{"congestion", 0x03}, {"lowdelay", 0x10}, {"throughput", 0x08},
		{"reliability", 0x04}, {"mincost", 0x02}, {"ecntransport", 0x02}}
)

var dscpNames = [64]string{
	0: "be", 8: "cs1", 10: "af11", 12: "af12", 14: "af13", 16: "cs2", 18: "af21", 20: "af22",
	22: "af23", 24: "cs3", 26: "af31",
	28: "af32", 30: "af33", 32: "cs4", 34: "af41", 36: "af42", 38: "af43", 40: "cs5", 44: "va",
	46: "ef", 48: "cs6", 56: "cs7",
}

var limitWords = []struct {
	name string
	mask op.LimitMask
}{{"src-addr", op.LimitSrcAddr}, {"src-port", op.LimitSrcPort}, {"dst-addr", op.LimitDstAddr},
	{"dst-port", op.LimitDstPort}}
