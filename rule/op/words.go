package op

var actionNames = [...]string{
	ActionAllow: "allow", ActionDeny: "deny", ActionReject: "reject", ActionReset: "reset",
	ActionUnreach:  "unreach",
	ActionUnreach6: "unreach6",
	ActionCount:    "count", ActionSkipTo: "skipto", ActionCall: "call", ActionReturn: "return",
	ActionCheckState: "check-state", ActionPipe: "pipe", ActionNAT: "nat",
	ActionFwd: "fwd",
}

// String returns the action's word.
func (op Action) String() string {
	if int(op) < len(actionNames) && actionNames[op] != "" {
		return actionNames[op]
	}
	return "unknown"
}

var stateNames = [...]string{
	StateCheck: "check-state", StateKeep: "keep-state", StateLimit: "limit",
	StateRecord: "record-state", StateSetLimit: "set-limit",
}

// Word returns the word of the state operation, "unknown" for none.
func (op State) Word() string {
	if int(op) < len(stateNames) && stateNames[op] != "" {
		return stateNames[op]
	}
	return "unknown"
}

// words are the canonical words of conditions in option position.
var words = [...]string{
	CondTrue: "src-ip any", CondVersion: "ipversion", CondProto: "proto",
	CondSrcIn: "src-ip", CondSrcMe: "src-ip", CondSrcTable: "src-ip", CondDstIn: "dst-ip",
	CondDstMe: "dst-ip", CondDstTable: "dst-ip",
	CondSrcPort: "src-port", CondDstPort: "dst-port", CondIn: "in", CondOut: "out",
	CondRecv: "recv", CondRecvGlob: "recv", CondRecvAny: "recv any", CondRecvAddr: "recv",
	CondXmit: "xmit", CondXmitGlob: "xmit", CondXmitAny: "xmit any", CondXmitAddr: "xmit",
	CondVia: "via", CondViaGlob: "via", CondViaAny: "via any", CondViaAddr: "via",
	CondFlags: "tcpflags", CondEstab: "established", CondSeq: "tcpseq", CondAck: "tcpack",
	CondWin:      "tcpwin",
	CondFrag:     "frag",
	CondICMPType: "icmptypes", CondICMP6Type: "icmp6types", CondTTL: "ipttl", CondLen: "iplen",
	CondID:        "ipid",
	CondIPOptions: "ipoptions", CondTOS: "iptos", CondDSCP: "dscp", CondPrecedence: "ipprecedence",
	CondTagged:     "tagged",
	CondVerRevPath: "verrevpath", CondVerSrcReach: "versrcreach", CondAntiSpoof: "antispoof",
}

// Word returns the option that stands for the condition in rule text.
func (op Cond) Word() string {
	if int(op) < len(words) && words[op] != "" {
		return words[op]
	}
	return "unknown"
}
