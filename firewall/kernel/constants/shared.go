package main

// A group of numbers that the programs share with package kernel: its doc, the name of the enum of
// C ("" for none), and the constants.
type group struct {
	doc, name string
	constants []shared
}

// A shared constant has a name in C and one in package kernel, "" if only the programs use it.
type shared struct {
	c, kernel string
	value     int64
	doc       string
}

// groups are the numbers in maps and in calls. They are defined only here.
var groups = []group{
	{`The version of the layout of all pinned maps. Raise it when the meaning of a byte in a
		pinned map changes, when a map is added, or when what one program of a hook hands to the
		other changes.`, "", []shared{
		{"LAYOUT", "layout", 27, ""},
	}},
	{"The second programs of hooks by their index in the map slow_paths.", "slow_path", []shared{
		{"SLOW_IN", "slowIn", 0, ""},
		{"SLOW_OUT", "slowOut", 1, ""},
		{"SLOW_IN_NETKIT", "slowInNetkit", 2, ""},
		{"SLOW_IN_L3", "slowInL3", 3, ""},
		{"SLOW_OUT_L3", "slowOutL3", 4, ""},
		{"SLOW_EVALUATE", "slowEvaluate", 5, ""},
		{"SLOW_PATHS", "", 6, ""},
	}},
	{`Bits of forwarding.stack: which packets go up the stack, because the host has IPsec policies or
		routing rules that only the stack applies.`, "stack_use", []shared{
		{"STACK_NICS", "stackNICs", 1, "those between pods and NICs"},
		{"STACK_PODS", "stackPods", 2, "those from one pod to another"},
	}},
	{"Bits of policy.flags: what an IPsec policy is about, and in which direction.", "policy_flag",
		[]shared{
			{"POLICY_PROTECTS", "policyProtects", 1, "it wants packets encrypted, or refuses them"},
			{"POLICY_OUT", "policyOut", 2, ""},
			{"POLICY_FORWARD", "policyForward", 4, ""},
		}},
	{"The mark of a packet that a rule with fwd gives to a socket of the host.", "", []shared{
		{"FWD_MARK", "fwdMark", 0x77656972, ""},
	}},
	{"The image of a Program: bytes of a row, and the row of the first codes.", "", []shared{
		{"ROW", "rowSize", 2048, ""},
		{"FIRST_CODES", "firstCodes", 1, ""},
	}},
	{"Words of a block. The summary of a vector has one bit for each block.", "", []shared{
		{"BLOCK", "block", 8, ""},
	}},
	{"Bits of header.need.", "need", []shared{
		{"NEED_NAMES", "needNames", 1, ""},
		{"NEED_STRICT", "needStrict", 2, ""},
		{"NEED_STATES", "needStates", 4, ""},
	}},
	{"Bits of header.reads: fields that the rules test.", "read", []shared{
		{"READ_SRC", "readSrc", 1, ""},
		{"READ_SPORT", "readSport", 2, ""},
		{"READ_ALL", "", 3, ""},
		{"READ_BITS", "readBits", 2, ""},
	}},
	{"Bits of code.flags.", "code_flag", []shared{
		{"CODE_DEFER", "codeDefer", 1, ""},
		{"CODE_LOG", "codeLog", 2, ""},
		{"CODE_LIBERAL", "codeLiberal", 4, ""},
		{"CODE_FRAG", "codeFrag", 8, ""},
		{"CODE_PROB", "codeProb", 16, ""},
		{"CODE_RATE", "codeRate", 32, ""},
		{"CODE_RATE_NEXT", "codeRateNext", 64, "exceed next"},
		{"CODE_PIPE", "codePipe", 128, "arg is the index of the pipe"},
	}},
	{"The parts of config.current: a mask, and two shifts.", "", []shared{
		{"CURRENT_SLOT", "currentSlot", 0xff, ""},
		{"CURRENT_FAST_FLOW", "currentFastFlow", 8, ""},
		{"CURRENT_READS", "currentReads", 24, ""},
	}},
	{"Flags of a route in the trie of routes.", "", []shared{
		{"ROUTE_BLACKHOLE", "routeBlackhole", 1, ""},
		{"ROUTE_DEFAULT", "routeDefault", 2, ""},
	}},
	{`Bits of iface.dhcp. The host may have a DHCP client there: the interface is not a pod's. It has
		no IPv4 address yet. It is the tunnel to other nodes.`, "dhcp_use", []shared{
		{"DHCP_CLIENT", "dhcpClient", 1, ""},
		{"DHCP_NO_ADDRESS", "dhcpNoAddress", 2, ""},
		{"IFACE_TUNNEL", "ifaceTunnel", 4, ""},
	}},
	{"Entries of one set of the state table.", "", []shared{
		{"WAYS", "ways", 8, ""},
	}},
	{`The state of an entry, in the low bits of its tag. A free entry may be used from the tick in
		the upper bits on; the tick of one that was never used is 0. Look-ups find an entry that
		is moving, but only the CPU that moves it may remove it or change how it is counted.`, "tag_state", []shared{
		{"TAG_FREE", "", 0, ""},
		{"TAG_CLAIMED", "", 1, ""},
		{"TAG_MOVING", "", 2, ""},
		{"TAG_LIVE", "tagLive", 3, ""},
		{"TAG_MASK", "tagMask", 3, ""},
		{"TAG_HALF_OPEN", "tagHalfOpen", 4, ""},
		{"TAG_ANSWERED", "tagAnswered", 8, ""},
		{"TAG_ENDING", "", 8, "without TAG_HALF_OPEN"},
	}},
	{`Bits of side.flags above those of flow.SideFlags and the scale. Low side only:
		META_HALF_OPEN and META_TRACK_PROVED. Of translations: META_WIRE, META_CROSS, META_SOURCE,
		META_NAT_RULE and META_FRESH.`, "meta", []shared{
		{"META_MADE", "metaMade", 1 << 16, "this end sent the packet that made the state"},
		{"META_LOOSE", "metaLoose", 1 << 17, ""},
		{"META_LIBERAL", "metaLiberal", 1 << 18, ""},
		{"META_HALF_OPEN", "metaHalfOpen", 1 << 19, "counts as half-open"},
		{"META_PEER", "", 1 << 20, "the other end was seen: saves its cache line (not TCP)"},
		{"META_TRACKED", "metaTracked", 1 << 21, ""},
		{"META_ADOPTED", "metaAdopted", 1 << 22, ""},
		{"META_WIRE", "metaWire", 1 << 23, "keyed by the tuple on the wire"},
		{"META_CROSS", "metaCross", 1 << 24, "the low end is the other entry's high end"},
		{"META_SOURCE", "metaSource", 1 << 25, "the originator's address is translated"},
		{"META_TRACK_PROVED", "", 1 << 26, "counts in its track as proved"},
		{"META_REDIRECT", "", 1 << 27, "netfilter does not translate the flow"},
		{"META_CAME_IN", "", 1 << 28, "of states: made by a packet that came in"},
		{"META_NAT_RULE", "metaNATRule", 1 << 28, "of translations: a rule with nat has made it"},
		{"META_REDEEMED", "metaRedeemed", 1 << 29, "of states: this end has sent nothing " +
			"that counts behind its SYN cookie"},
		{"META_FRESH", "metaFresh", 1 << 29, "no packet that it translated has passed yet"},
		{"META_PUBLISHED", "", 1 << 30, "of states: the flow goes through a published port"},
		{"META_BEHIND", "metaBehind", 1 << 31, "of liberal states: a copy, which may have missed " +
			"packets"},
	}},
	{`Translations are entries of the state table with the flow id NAT_FLOW. side_nat_word of the high
		side of the inner entry holds, from the low bits up: the phase of the flow at its last
		packet (NAT_PHASE); 1 + the place of the pod whose limit it counts against, 0 for none
		(NAT_POD); 1 + the place of the backend of a service, 0 for none (NAT_BACKEND); whether
		it is the first connection of its part of the flows (NAT_DRAWN); whether the backend
		has answered (NAT_ANSWERED). side.last of its low side is the time of the last packet.
		side_partner of the low side of each entry is the place of the other entry.`, "", []shared{
		{"NAT_FLOW", "natFlow", 255, ""},
		{"NAT_PHASE", "natPhase", 7, ""},
		{"NAT_POD_SHIFT", "", 3, ""},
		{"NAT_POD", "", 1<<14 - 1, "of MAX_PODS + 1"},
		{"NAT_BACKEND_SHIFT", "", 17, ""},
		{"NAT_BACKEND", "", 1<<13 - 1, "of BACKEND_PLACES"},
		{"NAT_DRAWN", "", 1 << 30, ""},
		{"NAT_ANSWERED", "", 1 << 31, ""},
	}},
	{"The kind of target of a published port, published.kind.", "leads", []shared{
		{"TO_POD", "toPod", 0, ""},
		{"TO_OTHER", "toOther", 1, "any address that the stack routes to"},
		{"TO_SERVICE", "toService", 2, "one of the backends in the map services"},
		{"TO_NAT_RULE", "toNATRule", 3, "as TO_OTHER, by a rule with nat, number << 16 in port"},
	}},
	{`Limits of services: the backends of one service, the parts into which its flows are divided,
		and the backends of all services together.`, "", []shared{
		{"MAX_BACKENDS", "maxBackends", 128, "a power of two"},
		{"SERVICE_SLOTS", "serviceSlots", 256, "a power of two"},
		{"BACKEND_PLACES", "backendPlaces", 4096, ""},
		{"SERVICE_SEEDS", "", 10, "as hash5 takes"},
	}},
	{"The window scale if the option was not seen: the largest, RFC 7323 2.3.", "", []shared{
		{"LOOSE_SCALE", "looseScale", 14, ""},
	}},
	{`Modes of SYN cookies. COOKIES_ON begins when half-open states fill 1/COOKIES_FROM of their
		limit. It ends when half-open states and unredeemed cookies together fill less than
		1/COOKIES_TO. Then cookies that were sent may be redeemed for two minutes
		(COOKIES_ENDING).`,
		"cookies_mode", []shared{
			{"COOKIES_OFF", "", 0, ""},
			{"COOKIES_ON", "cookiesOn", 1, ""},
			{"COOKIES_ENDING", "", 2, ""},
		}},
	{`Bits of config.cookies. COOKIE_STAMPS: the stack uses timestamps, SACK and window
		scaling.`, "cookie_use", []shared{
		{"COOKIE_USE", "cookieUse", 1, ""},
		{"COOKIE_STAMPS", "cookieStamps", 2, ""},
	}},
	{`Kinds of events besides enum event_kind, for the agent only: a captured packet, and a request
		to probe both ends of an idle TCP connection. Subscribers do not get them.`,
		"", []shared{
			{"EVENT_PACKET", "eventPacket", 30, ""},
			{"EVENT_PROBE", "eventProbe", 31, ""},
		}},
	{`The most IPsec policies that the programs ask. forwarding.policies is how many there are, and
		with POLICIES_SECOND they lie in the second half of the map.`, "", []shared{
		{"MAX_POLICIES", "maxPolicies", 4096, ""},
		{"POLICIES_SECOND", "policiesSecond", 0x10000, ""},
		{"NO_POLICY", "noPolicy", 0xffff, "in place of a place"},
	}},
	{"Limits of pods.", "", []shared{
		{"MAX_POD_ADDRESSES", "maxPodAddresses", 4, ""},
		{"MAX_PODS", "maxPods", 8192, ""},
	}},
	{"Flags in the trie of translated sources.", "", []shared{
		{"MASK_SOURCE", "maskSource", 1, ""},
		{"MASK_EXCEPT", "maskExcept", 2, ""},
		{"MASK_BEHIND", "maskBehind", 4, "sources of others than pods"},
		{"MASK_NEAR", "maskNear", 8, "destinations to which those are not translated"},
		{"MASK_KEEP", "maskKeep", 16, "ports and ids are not translated"},
		{"MASK_UNREG", "maskUnreg", 32, "of rules with nat: sources of RFC 1918 only"},
		{"MASK_UNREG_CGN", "maskUnregCGN", 64, "and of RFC 6598"},
	}},
	{`Bits of forwarding.masquerade. MASQUERADE_WHOLE: all ports and protocols of some addresses are
		translated to another address. MASQUERADE_NAT_RULE: there are rules with nat.`, "", []shared{
		{"MASQUERADE_WHOLE", "masqueradeWhole", 2, ""},
		{"MASQUERADE_NAT_RULE", "masqueradeNATRule", 4, ""},
	}},
	{"Operations of the program weir_call.", "op", []shared{
		{"OP_REMOVE", "opRemove", 1, ""},
		{"OP_SWEEP", "opSweep", 2, ""},
		{"OP_ADOPT", "opAdopt", 3, ""},
		{"OP_PURGE", "opPurge", 4, ""},
		{"OP_TICK", "opTick", 5, ""},
		{"OP_CLOCK", "opClock", 6, ""},
		{"OP_BEGIN_MOVE", "opBeginMove", 7, "for tests: what packets find while an entry moves"},
		{"OP_END_MOVE", "opEndMove", 8, ""},
		{"OP_ADOPT_MANY", "opAdoptMany", 9, ""},
	}},
	{`Bits of call.count of an adoption. ADOPT_MERGE: if the state exists, it is updated from the
		call; a state of an earlier flow with the same ends is replaced. ADOPT_STALE: the table
		that the copy comes from has not seen the latest packets, so the later numbers of the two
		are kept. ADOPT_RESYNC: this is the last copy; a state that may have missed packets takes
		its numbers from the next ones. ADOPT_PARTNER: the call describes the other entry of the
		translation that the previous call has made or updated.`, "", []shared{
		{"ADOPT_MERGE", "adoptMerge", 1, ""},
		{"ADOPT_STALE", "adoptStale", 2, ""},
		{"ADOPT_RESYNC", "adoptResync", 4, ""},
		{"ADOPT_PARTNER", "adoptPartner", 8, ""},
	}},
	{`The most states that one OP_ADOPT_MANY adopts. Since Linux 6.3 no softirq interrupts it, so
		packets of its CPU wait for it, about 50 microseconds.`, "", []shared{
		{"ADOPT_BATCH", "adoptBatch", 64, ""},
	}},
	{`The result of an adoption: the state was made; it existed and had missed packets that the sides
		in the call have seen; it existed (only inside the program, see adopt.h).`,
		"", []shared{
			{"ADOPT_MADE", "adoptMade", 1, ""},
			{"ADOPT_BEHIND", "adoptBehind", 2, ""},
			{"ADOPT_FOUND", "", 3, ""},
		}},
	{"Why states are removed.", "removal", []shared{
		{"GONE_EXPIRED", "", 0, ""},
		{"GONE_RECYCLED", "", 1, ""},
		{"GONE_RECLAIMED", "", 2, ""},
		{"GONE_RULE", "", 3, ""},
		{"GONE_DELETED", "goneDeleted", 4, ""},
		{"GONE_DUPLICATE", "", 5, ""},
		{"GONE_SOURCE", "", 6, ""},
	}},
}
