package kernel

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

var (
	comment = regexp.MustCompile(`//[^\n]*`)
	enum    = regexp.MustCompile(`enum\s*(\w*)\s*\{([^}]*)\}`)
)

// enums reads the enumerators of the headers in bpf/lib.
func enums(t *testing.T, headers ...string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for _, h := range headers {
		b, err := os.ReadFile("../../bpf/lib/" + h)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range enum.FindAllStringSubmatch(comment.ReplaceAllString(string(b), ""), -1) {
			next := int64(0)
			for _, item := range strings.Split(e[2], ",") {
				name, value, given := strings.Cut(strings.TrimSpace(item), "=")
				if name = strings.TrimSpace(name); name == "" {
					continue
				}
				if given {
					next = number(t, all, strings.TrimSpace(value))
				}
				all[name] = next
				next++
			}
		}
	}
	return all
}

// number evaluates a number, a name, or two of them with |, << or /.
func number(t *testing.T, known map[string]int64, s string) int64 {
	t.Helper()
	if n, err := strconv.ParseInt(s, 0, 64); err == nil {
		return n
	}
	if n, ok := known[s]; ok {
		return n
	}
	if a, b, ok := strings.Cut(s, "|"); ok {
		return number(t, known, strings.TrimSpace(a)) | number(t, known, strings.TrimSpace(b))
	}
	if a, b, ok := strings.Cut(s, "<<"); ok {
		return number(t, known, strings.TrimSpace(a)) << number(t, known, strings.TrimSpace(b))
	}
	if a, b, ok := strings.Cut(s, "/"); ok {
		return number(t, known, strings.TrimSpace(a)) / number(t, known, strings.TrimSpace(b))
	}
	t.Fatalf("cannot read the value %q", s)
	return 0
}

// TestConstants compares what C and Go call by different names.
func TestConstants(t *testing.T) {
	c := enums(t, "consts.h", "dhcp.h", "image.h", "types.h", "table.h", "tcp.h", "sweep.h",
		"control.h", "adopt.h", "decode.h", "pod.h")
	same := map[string]int64{
		"PROTO_HOPBYHOP": int64(packet.ProtoHopByHop), "PROTO_ICMP": int64(packet.ProtoICMP),
		"PROTO_TCP": int64(packet.ProtoTCP),
		"PROTO_UDP": int64(packet.ProtoUDP), "PROTO_ROUTING": int64(packet.ProtoRouting),
		"PROTO_FRAGMENT": int64(packet.ProtoFragment),
		"PROTO_AH":       int64(packet.ProtoAH), "PROTO_ICMPV6": int64(packet.ProtoICMPv6),
		"PROTO_DESTINATION": int64(packet.ProtoDestination),
		"PROTO_SCTP":        int64(packet.ProtoSCTP), "PROTO_UDPLITE": int64(packet.ProtoUDPLite),

		"TH_FIN": int64(packet.FlagFIN), "TH_SYN": int64(packet.FlagSYN),
		"TH_RST": int64(packet.FlagRST), "TH_PSH": int64(packet.FlagPSH),
		"TH_ACK": int64(packet.FlagACK), "TH_URG": int64(packet.FlagURG),
		"FRAG_FIRST": int64(packet.FragFirst), "FRAG_LATER": int64(packet.FragLater),
		"FRAG_MF": int64(packet.FragMF),
		"FRAG_DF": int64(packet.FragDF), "FRAG_RF": int64(packet.FragRF),
		"OPT_SSRR": int64(packet.OptSSRR), "OPT_LSRR": int64(packet.OptLSRR),
		"OPT_RR": int64(packet.OptRR), "OPT_TS": int64(packet.OptTS),
		"OPT_ROUTER_ALERT": int64(packet.OptRouterAlert),
		"EXT_HOPBYHOP":     int64(packet.ExtHopByHop), "EXT_ROUTING": int64(packet.ExtRouting),
		"EXT_DESTINATION": int64(packet.ExtDestination),
		"EXT_FRAGMENT":    int64(packet.ExtFragment), "EXT_AH": int64(packet.ExtAH),
		"EXT_ROUTING0": int64(packet.ExtRouting0),

		"DECODE_OK": int64(packet.ReasonNone), "DECODE_SHORT": int64(packet.ReasonShort),
		"DECODE_VERSION": int64(packet.ReasonVersion),
		"DECODE_IHL":     int64(packet.ReasonIHL), "DECODE_LENGTH": int64(packet.ReasonLength),
		"DECODE_MAPPED":        int64(packet.ReasonMapped),
		"DECODE_JUMBO":         int64(packet.ReasonJumbo),
		"DECODE_IP_OPTION":     int64(packet.ReasonIPOption),
		"DECODE_EXT_COUNT":     int64(packet.ReasonExtCount),
		"DECODE_EXT_ORDER":     int64(packet.ReasonExtOrder),
		"DECODE_EXT_SHORT":     int64(packet.ReasonExtShort),
		"DECODE_EXT_OPTION":    int64(packet.ReasonExtOption),
		"DECODE_FRAG_LENGTH":   int64(packet.ReasonFragLength),
		"DECODE_FRAG_END":      int64(packet.ReasonFragEnd),
		"DECODE_FRAG_TINY":     int64(packet.ReasonFragTiny),
		"DECODE_FRAG_OVERLAP":  int64(packet.ReasonFragOverlap),
		"DECODE_TRANSPORT":     int64(packet.ReasonTransport),
		"DECODE_TCP_OFFSET":    int64(packet.ReasonTCPOffset),
		"DECODE_UDP_LENGTH":    int64(packet.ReasonUDPLength),
		"DECODE_UDPLITE_COVER": int64(packet.ReasonUDPLiteCover),
		"DECODE_LINK":          int64(packet.ReasonLink), "DECODE_VLANS": int64(packet.ReasonVLAN),

		"REASON_RULE": int64(firewall.ReasonRule), "REASON_NOT_IP": int64(firewall.ReasonNotIP),
		"REASON_ESSENTIAL":        int64(firewall.ReasonEssential),
		"DHCP_SENT":               packet.DHCPSent,
		"DHCP_RECEIVED":           packet.DHCPReceived,
		"DHCP6_SENT":              packet.DHCP6Sent,
		"DHCP6_RECEIVED":          packet.DHCP6Received,
		"DHCP_CLIENT":             dhcpClient,
		"DHCP_NO_ADDRESS":         dhcpNoAddress,
		"REASON_LIMIT":            int64(firewall.ReasonLimit),
		"REASON_STATES_FULL":      int64(firewall.ReasonStatesFull),
		"REASON_HALF_OPEN_FULL":   int64(firewall.ReasonHalfOpenFull),
		"REASON_NO_KEY":           int64(firewall.ReasonNoKey),
		"REASON_TCP_FLAGS":        int64(firewall.ReasonTCPFlags),
		"REASON_TCP_RST":          int64(firewall.ReasonTCPRst),
		"REASON_TCP_ACK":          int64(firewall.ReasonTCPAck),
		"REASON_TCP_WINDOW":       int64(firewall.ReasonTCPWindow),
		"REASON_SCTP_TAG":         int64(firewall.ReasonSCTPTag),
		"REASON_ICMP_SEQ":         int64(firewall.ReasonICMPSeq),
		"REASON_FRAG_UNKNOWN":     int64(firewall.ReasonFragUnknown),
		"REASON_FRAG_OVERLAP":     int64(firewall.ReasonFragOverlap),
		"REASON_FRAG_FIRST":       int64(firewall.ReasonFragFirst),
		"REASON_LOOP":             int64(firewall.ReasonLoop),
		"REASON_SPOOF":            int64(firewall.ReasonSpoof),
		"REASON_MARTIAN":          int64(firewall.ReasonMartian),
		"REASON_NAT_PORTS":        int64(firewall.ReasonNATPorts),
		"REASON_RATE":             int64(firewall.ReasonRate),
		"REASON_HALF_OPEN_SOURCE": int64(firewall.ReasonHalfOpenSource),
		"REASON_COOKIE":           int64(firewall.ReasonCookie),
		"REASON_COOKIE_REFUSED":   int64(firewall.ReasonCookieRefused),
		"REASON_COOKIE_REPEATED":  int64(firewall.ReasonCookieRepeated),
		"REASON_TRACKS_FULL":      int64(firewall.ReasonTracksFull),
		"REASON_DECODE":           int64(firewall.ReasonDecode),

		"DIR_IN": int64(firewall.In), "DIR_OUT": int64(firewall.Out),
		"ANSWER_NONE":     int64(firewall.AnswerNone),
		"ANSWER_RESET":    int64(firewall.AnswerReset),
		"ANSWER_UNREACH":  int64(firewall.AnswerUnreach),
		"ANSWER_UNREACH6": int64(firewall.AnswerUnreach6),
		"ANSWER_COOKIE":   int64(firewall.AnswerCookie),
		"USE_NONE":        int64(firewall.StateNone), "USE_HIT": int64(firewall.StateHit),
		"USE_NEW":       int64(firewall.StateNew),
		"USE_UNTOUCHED": int64(firewall.StateUntouched),
		"EVENT_START":   int64(firewall.EventStart), "EVENT_END": int64(firewall.EventEnd),
		"EVENT_DROP": int64(firewall.EventDrop),
		"EVENT_LOG":  int64(firewall.EventLog), "EVENT_REFUSE": int64(firewall.EventRefuse),
		"EVENT_PROBE":  eventProbe,
		"EVENT_PACKET": eventPacket,

		"ACT_ALLOW": int64(op.ActionAllow), "ACT_DENY": int64(op.ActionDeny),
		"ACT_REJECT": int64(op.ActionReject), "ACT_RESET": int64(op.ActionReset),
		"ACT_UNREACH": int64(op.ActionUnreach), "ACT_UNREACH6": int64(op.ActionUnreach6),
		"ACT_COUNT":  int64(op.ActionCount),
		"ACT_SKIPTO": int64(op.ActionSkipTo), "ACT_CALL": int64(op.ActionCall),
		"ACT_RETURN": int64(op.ActionReturn), "ACT_CHECK": int64(op.ActionCheckState),
		"STATE_NONE": int64(op.StateNone), "STATE_CHECK": int64(op.StateCheck),
		"STATE_KEEP":  int64(op.StateKeep),
		"STATE_LIMIT": int64(op.StateLimit), "STATE_RECORD": int64(op.StateRecord),
		"STATE_SET_LIMIT": int64(op.StateSetLimit),
		"LIMIT_SRC_ADDR":  int64(op.LimitSrcAddr), "LIMIT_SRC_PORT": int64(op.LimitSrcPort),
		"LIMIT_DST_ADDR": int64(op.LimitDstAddr),
		"LIMIT_DST_PORT": int64(op.LimitDstPort),

		"COND_FALSE": int64(op.CondFalse), "COND_TRUE": int64(op.CondTrue),
		"COND_VERSION": int64(op.CondVersion), "COND_PROTO": int64(op.CondProto),
		"COND_SRC_IN": int64(op.CondSrcIn), "COND_DST_IN": int64(op.CondDstIn),
		"COND_SRC_ME": int64(op.CondSrcMe), "COND_DST_ME": int64(op.CondDstMe),
		"COND_SRC_TABLE": int64(op.CondSrcTable), "COND_DST_TABLE": int64(op.CondDstTable),
		"COND_SRC_PORT": int64(op.CondSrcPort),
		"COND_DST_PORT": int64(op.CondDstPort), "COND_IN": int64(op.CondIn),
		"COND_OUT":  int64(op.CondOut),
		"COND_RECV": int64(op.CondRecv), "COND_XMIT": int64(op.CondXmit),
		"COND_VIA":       int64(op.CondVia),
		"COND_RECV_GLOB": int64(op.CondRecvGlob), "COND_XMIT_GLOB": int64(op.CondXmitGlob),
		"COND_VIA_GLOB": int64(op.CondViaGlob),
		"COND_RECV_ANY": int64(op.CondRecvAny), "COND_XMIT_ANY": int64(op.CondXmitAny),
		"COND_VIA_ANY":   int64(op.CondViaAny),
		"COND_RECV_ADDR": int64(op.CondRecvAddr), "COND_XMIT_ADDR": int64(op.CondXmitAddr),
		"COND_VIA_ADDR": int64(op.CondViaAddr),
		"COND_FLAGS":    int64(op.CondFlags), "COND_ESTAB": int64(op.CondEstab),
		"COND_SEQ": int64(op.CondSeq), "COND_ACK": int64(op.CondAck),
		"COND_WIN": int64(op.CondWin), "COND_FRAG": int64(op.CondFrag),
		"COND_ICMP_TYPE":  int64(op.CondICMPType),
		"COND_ICMP6_TYPE": int64(op.CondICMP6Type), "COND_TTL": int64(op.CondTTL),
		"COND_LEN": int64(op.CondLen), "COND_ID": int64(op.CondID),
		"COND_IP_OPTIONS": int64(op.CondIPOptions), "COND_TOS": int64(op.CondTOS),
		"COND_DSCP":       int64(op.CondDSCP),
		"COND_PRECEDENCE": int64(op.CondPrecedence), "COND_TAGGED": int64(op.CondTagged),
		"COND_VER_REV_PATH":  int64(op.CondVerRevPath),
		"COND_VER_SRC_REACH": int64(op.CondVerSrcReach), "COND_ANTI_SPOOF": int64(op.CondAntiSpoof),
		"COND_NOT": int64(program.FlagNot), "COND_OR": int64(program.FlagOr),
		"FRAGBIT_OFFSET": op.FragOffset, "FRAGBIT_MF": op.FragMF, "FRAGBIT_DF": op.FragDF,
		"FRAGBIT_RF": op.FragRF,

		"DIM_SRC": int64(program.DimSrc), "DIM_DST": int64(program.DimDst),
		"DIM_SPORT": int64(program.DimSrcPort), "DIM_DPORT": int64(program.DimDstPort),
		"DIM_PROTO": int64(program.DimProto), "DIM_FLAGS": int64(program.DimFlags),
		"DIM_ICMP": int64(program.DimICMP), "DIM_HOOK": int64(program.DimHook),
		"NUM_DIMS": int64(program.NumDims), "NO_PORT": program.NoPort, "NO_FLAGS": program.NoFlags,
		"NO_ICMP":   program.NoICMP,
		"MAX_RULES": program.MaxRules, "MAX_CALLS": program.MaxCalls, "MAX_JUMPS": program.MaxJumps,
		"ANY_FLOW": program.AnyFlow, "MAX_TAGS": 8,

		"SIDE_SEEN": int64(flow.SideSeen), "SIDE_SYN": int64(flow.SideSyn),
		"SIDE_ACKED": int64(flow.SideAcked),
		"SIDE_FIN":   int64(flow.SideFin),
		"SIDE_RST":   int64(flow.SideRst), "SIDE_SCALED": int64(flow.SideScaled),
		"SIDE_PROVED": int64(flow.SideProved), "COOKIE_USE": cookieUse,
		"COOKIE_STAMPS": cookieStamps,
		"COOKIES_ON":    cookiesOn,
		"RES_HIT":       int64(flow.ResultHit), "RES_UNTOUCHED": int64(flow.ResultUntouched),
		"RES_RECYCLE": int64(flow.ResultRecycle), "RES_BAD_FLAGS": int64(flow.ResultBadFlags),
		"RES_BAD_RST": int64(flow.ResultBadRst), "RES_BAD_ACK": int64(flow.ResultBadAck),
		"RES_BAD_WINDOW": int64(flow.ResultBadWindow),
		"RES_BAD_TAG":    int64(flow.ResultBadTag), "RES_BAD_ICMP": int64(flow.ResultBadICMP),
		"PHASE_OPENING":     int64(flow.PhaseOpening),
		"PHASE_ESTABLISHED": int64(flow.PhaseEstablished),
		"PHASE_CLOSING":     int64(flow.PhaseClosing),
		"PHASE_CLOSED":      int64(flow.PhaseClosed), "PHASE_RESET": int64(flow.PhaseReset),
		"PHASE_ANSWERED": int64(flow.PhaseAnswered),

		"LAYOUT": layout, "ROW": rowSize, "FIRST_CODES": firstCodes, "WAYS": ways,
		"DIR_BLOCK":  program.DirBlock,
		"NEED_NAMES": needNames, "NEED_STRICT": needStrict, "NEED_STATES": needStates,
		"CODE_DEFER": codeDefer, "CODE_LOG": codeLog, "CODE_LIBERAL": codeLiberal,
		"CODE_FRAG": codeFrag, "CODE_PROB": codeProb,
		"ROUTE_BLACKHOLE": routeBlackhole, "ROUTE_DEFAULT": routeDefault,
		"META_MADE": metaMade, "META_LOOSE": metaLoose, "META_HALF_OPEN": metaHalfOpen,
		"META_TRACKED": metaTracked, "META_ADOPTED": metaAdopted,
		"META_WIRE": metaWire, "META_CROSS": metaCross, "META_FRESH": metaFresh,
		"NAT_PHASE": natPhase, "MAX_PORT_SPANS": forward.MaxPortRanges, "META_SOURCE": metaSource,
		"MASK_SOURCE": maskSource, "MASK_EXCEPT": maskExcept,
		"MAX_PODS": maxPods, "MAX_POD_ADDRESSES": maxPodAddresses, "CURRENT_SLOT": currentSlot,
		"CURRENT_FAST_FLOW": currentFastFlow, "CURRENT_READS": currentReads,
		"READ_SRC": readSrc, "READ_SPORT": readSport, "READ_BITS": readBits, "BLOCK": block,
		"TAG_MASK": tagMask, "TAG_LIVE": tagLive, "TAG_HALF_OPEN": tagHalfOpen,
		"TAG_ANSWERED": tagAnswered, "META_LIBERAL": metaLiberal, "NAT_FLOW": natFlow,
		"ADOPT_MERGE": adoptMerge, "ADOPT_STALE": adoptStale, "ADOPT_RESYNC": adoptResync,
		"LOOSE_SCALE": looseScale, "ADOPT_MADE": adoptMade,
		"ADOPT_BEHIND": adoptBehind,
		"OP_EVALUATE":  opEvaluate, "OP_REMOVE": opRemove, "OP_SWEEP": opSweep, "OP_ADOPT": opAdopt,
		"OP_PURGE": opPurge, "OP_TICK": opTick, "OP_CLOCK": opClock, "OP_BEGIN_MOVE": opBeginMove,
		"OP_END_MOVE": opEndMove, "GONE_DELETED": goneDeleted,
	}
	for name, want := range same {
		if got, ok := c[name]; !ok || got != want {
			t.Errorf("%s is %d in C (known: %v), %d in Go", name, got, ok, want)
		}
	}
	// Every enumerator of consts.h stands for something in Go, so each has to be above.
	for name := range enums(t, "consts.h") {
		if _, ok := same[name]; !ok && name != "NUM_REASONS" {
			t.Errorf("%s of consts.h is compared with nothing", name)
		}
	}
}

// TestSizes checks what places are computed from.
func TestSizes(t *testing.T) {
	for what, sizes := range map[string][2]uintptr{
		"a code":         {unsafe.Sizeof(weirCode{}), 64},
		"a cond":         {unsafe.Sizeof(weirCond{}), 16},
		"a range":        {unsafe.Sizeof(weirRange{}), unsafe.Sizeof(rule.Range{})},
		"a span":         {unsafe.Sizeof(weirSpan{}), 32},
		"a side":         {unsafe.Sizeof(weirSide{}), 64},
		"a set":          {unsafe.Sizeof(weirSet{}), 20 * 64},
		"a line of tags": {unsafe.Sizeof(weirTagLine{}), 64},
	} {
		if sizes[0] != sizes[1] {
			t.Errorf("%s has %d bytes, not %d", what, sizes[0], sizes[1])
		}
	}
	if n := unsafe.Sizeof(weirHeader{}); n > rowSize {
		t.Errorf("the header has %d bytes, more than a row", n)
	}
	const hintSize = 8
	// Memory per state, for both families, at the highest number of states.
	states := firewall.DefaultOptions().MaxStates
	per := float64(setsFor(states)) * float64(unsafe.Sizeof(weirSet{})+unsafe.Sizeof(weirTagLine{})+
		hintSize) / float64(states)
	t.Logf("memory per state: %.1f bytes", per)
	if per > 192 {
		t.Errorf("memory per state: %.1f bytes", per)
	}
}
