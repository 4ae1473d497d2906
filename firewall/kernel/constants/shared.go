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

// groups are what lies in maps and in calls: the one place where these numbers stand.
var groups = []group{
	{`The layout of everything pinned. Raised whenever the meaning of a byte in a pinned map
		changes, or there is another map.`, "", []shared{
		{"LAYOUT", "layout", 20, ""},
	}},
	{`Bits of forwarding.stack: which packets go up the stack, because the host has IPsec policies or
		routing rules for them that the fast path does not know.`, "stack_use", []shared{
		{"STACK_NICS", "stackNICs", 1, "those between pods and NICs"},
		{"STACK_PODS", "stackPods", 2, "those from one pod to another"},
	}},
	{"The mark of a packet that a rule with fwd gives to a socket of the host.", "", []shared{
		{"FWD_MARK", "fwdMark", 0x77656972, ""},
	}},
	{"The image of a Program: bytes of a row, and the row of the first codes.", "", []shared{
		{"ROW", "rowSize", 2048, ""},
		{"FIRST_CODES", "firstCodes", 1, ""},
	}},
	{"A block of words: what the summary of a vector has a bit for.", "", []shared{
		{"BLOCK", "block", 8, ""},
	}},
	{"Bits of header.need.", "need", []shared{
		{"NEED_NAMES", "needNames", 1, ""},
		{"NEED_STRICT", "needStrict", 2, ""},
		{"NEED_STATES", "needStates", 4, ""},
	}},
	{"Bits of header.reads: what rules may ask about and often do not.", "read", []shared{
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
	{"Where the parts of config.current lie.", "", []shared{
		{"CURRENT_SLOT", "currentSlot", 0xff, ""},
		{"CURRENT_FAST_FLOW", "currentFastFlow", 8, ""},
		{"CURRENT_READS", "currentReads", 24, ""},
	}},
	{"What is known of a network: a route, by its prefix.", "", []shared{
		{"ROUTE_BLACKHOLE", "routeBlackhole", 1, ""},
		{"ROUTE_DEFAULT", "routeDefault", 2, ""},
	}},
	{`Bits of iface.dhcp: the host may have a client there, that is, it is not a pod's; it has no
		IPv4 address yet; and it is the tunnel to other nodes.`, "dhcp_use", []shared{
		{"DHCP_CLIENT", "dhcpClient", 1, ""},
		{"DHCP_NO_ADDRESS", "dhcpNoAddress", 2, ""},
		{"IFACE_TUNNEL", "ifaceTunnel", 4, ""},
	}},
	{"Entries of one set of the state table.", "", []shared{
		{"WAYS", "ways", 8, ""},
	}},
	{`What the low bits of a tag say. A free entry may be used from the tick in its upper bits
		on: from the beginning, if it was never used. Look-ups find one that is moving, but only
		the CPU that moves it may remove it or change what it counts as.`, "tag_state", []shared{
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
		META_HALF_OPEN and META_KEEPS. Of translations: META_WIRE, META_CROSS, META_SOURCE,
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
		{"META_KEEPS", "", 1 << 26, "counts in its track as proved"},
		{"META_REDIRECT", "", 1 << 27, "netfilter does not translate the flow"},
		{"META_CAME_IN", "", 1 << 28, "of states: made by a packet that came in"},
		{"META_NAT_RULE", "metaNATRule", 1 << 28, "of translations: a rule with nat has made it"},
		{"META_FRESH", "metaFresh", 1 << 29, "no packet that it translated has passed yet"},
		{"META_PUBLISHED", "", 1 << 30, "of states: the flow goes through a published port"},
		{"META_BEHIND", "metaBehind", 1 << 31, "of liberal states: a copy, which may have missed " +
			"packets"},
	}},
	{`Translations lie among the states, under a flow id of their own. A translation's inner
		entry has in track of its high side the phase of the flow that it was in when the last
		packet passed, above it 1 + the place of the pod that it counts for, 0 for none, and above
		that 1 + the place of the backend of a service, whether its connection is the first of
		its part of the flows, and whether the backend has answered. Its last packet is that of
		its low side. The low sides of both entries have the place of the other.`, "", []shared{
		{"NAT_FLOW", "natFlow", 255, ""},
		{"NAT_PHASE", "natPhase", 7, ""},
		{"NAT_POD_SHIFT", "", 3, ""},
		{"NAT_POD", "", 1<<14 - 1, "of MAX_PODS + 1"},
		{"NAT_BACKEND_SHIFT", "", 17, ""},
		{"NAT_BACKEND", "", 1<<13 - 1, "of BACKEND_PLACES"},
		{"NAT_DRAWN", "", 1 << 30, ""},
		{"NAT_ANSWERED", "", 1 << 31, ""},
	}},
	{"What a published port leads to, published.kind.", "leads", []shared{
		{"TO_POD", "toPod", 0, ""},
		{"TO_OTHER", "toOther", 1, "any address that the stack routes to"},
		{"TO_SERVICE", "toService", 2, "one of the backends in the map services"},
		{"TO_NAT_RULE", "toNATRule", 3, "as TO_OTHER, by a rule with nat, number << 16 in port"},
	}},
	{`Services: how many backends one has, in how many equal parts its flows are divided, and
		how many backends count in all.`, "", []shared{
		{"MAX_BACKENDS", "maxBackends", 128, "a power of two"},
		{"SERVICE_SLOTS", "serviceSlots", 256, "a power of two"},
		{"BACKEND_PLACES", "backendPlaces", 4096, ""},
		{"SERVICE_SEEDS", "", 10, "as hash5 takes"},
	}},
	{"The scale of windows whose option was not seen: the largest, RFC 7323 2.3.", "", []shared{
		{"LOOSE_SCALE", "looseScale", 14, ""},
	}},
	{`Modes of SYN cookies. They begin when half-open states fill 1/COOKIES_FROM of their
		limit. They end when these, and the unredeemed cookies as if they were states, fill less
		than 1/COOKIES_TO. Cookies sent before may be redeemed for another two minutes.`,
		"cookies_mode", []shared{
			{"COOKIES_OFF", "", 0, ""},
			{"COOKIES_ON", "cookiesOn", 1, ""},
			{"COOKIES_GOING", "", 2, ""},
		}},
	{`Bits of config.cookies. With COOKIE_STAMPS the stack has time stamps, SACK and window
		scaling.`, "cookie_use", []shared{
		{"COOKIE_USE", "cookieUse", 1, ""},
		{"COOKIE_STAMPS", "cookieStamps", 2, ""},
	}},
	{`Kinds of events for the agent alone, besides enum event_kind: a captured packet, a
		request to probe both ends of an idle TCP connection. Subscribers never see them.`,
		"", []shared{
			{"EVENT_PACKET", "eventPacket", 30, ""},
			{"EVENT_PROBE", "eventProbe", 31, ""},
		}},
	{"Limits of pods.", "", []shared{
		{"MAX_POD_ADDRESSES", "maxPodAddresses", 4, ""},
		{"MAX_PODS", "maxPods", 8192, ""},
	}},
	{"Flags in the trie of translated sources.", "", []shared{
		{"MASK_SOURCE", "maskSource", 1, ""},
		{"MASK_EXCEPT", "maskExcept", 2, ""},
		{"MASK_BEHIND", "maskBehind", 4, "sources of others than pods"},
		{"MASK_NEAR", "maskNear", 8, "destinations for which those stay"},
		{"MASK_KEEP", "maskKeep", 16, "ports and ids stay"},
		{"MASK_UNREG", "maskUnreg", 32, "of rules with nat: sources of RFC 1918 only"},
		{"MASK_UNREG_CGN", "maskUnregCGN", 64, "and of RFC 6598"},
	}},
	{`In forwarding.masquerade: some addresses have all ports and protocols of another one; rules
		have nat.`, "", []shared{
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
	{`What call.count of an adoption says. With ADOPT_MERGE a state that is there already is
		brought up to what the call describes, and one of an earlier flow with the same ends is
		replaced. With ADOPT_STALE the other table has not seen the
		latest packets: its numbers are only compared, and the later ones stay. With
		ADOPT_RESYNC no other copy follows: a state that may have missed packets begins again
		with the numbers of the next ones. With ADOPT_PARTNER it describes the other entry of the
		translation that the call before it has made or brought up to date.`, "", []shared{
		{"ADOPT_MERGE", "adoptMerge", 1, ""},
		{"ADOPT_STALE", "adoptStale", 2, ""},
		{"ADOPT_RESYNC", "adoptResync", 4, ""},
		{"ADOPT_PARTNER", "adoptPartner", 8, ""},
	}},
	{`How many states OP_ADOPT_MANY adopts at most. Since Linux 6.3 no softirq interrupts it, and
		packets of its CPU wait for it: some 50 microseconds.`, "", []shared{
		{"ADOPT_BATCH", "adoptBatch", 64, ""},
	}},
	{`What an adoption returns: the state was made, or it was there and had missed packets
		that the call's sides have seen. ADOPT_FOUND stays in the program, see adopt.h.`,
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
		{"GONE_DOUBLE", "", 5, ""},
		{"GONE_SOURCE", "", 6, ""},
	}},
}
