package kernel

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
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

// TestConstants compares what C and this package call by different names. What C has from other
// packages is generated: consts.h.
func TestConstants(t *testing.T) {
	c := enums(t, "consts.h", "dhcp.h", "image.h", "types.h", "remove.h", "table.h", "tcp.h",
		"sweep.h", "control.h", "adopt.h", "decode.h", "pod.h")
	same := map[string]int64{
		"EVENT_PROBE": eventProbe, "EVENT_PACKET": eventPacket, "MAX_TAGS": 8,
		"DHCP_CLIENT": dhcpClient, "DHCP_NO_ADDRESS": dhcpNoAddress,
		"COOKIE_USE": cookieUse, "COOKIE_STAMPS": cookieStamps, "COOKIES_ON": cookiesOn,
		"LAYOUT": layout, "ROW": rowSize, "FIRST_CODES": firstCodes, "WAYS": ways,
		"DIR_BLOCK": program.DirBlock, "NEED_NAMES": needNames, "NEED_STRICT": needStrict,
		"NEED_STATES": needStates, "CODE_DEFER": codeDefer, "CODE_LOG": codeLog,
		"CODE_LIBERAL": codeLiberal, "CODE_FRAG": codeFrag, "CODE_PROB": codeProb,
		"ROUTE_BLACKHOLE": routeBlackhole, "ROUTE_DEFAULT": routeDefault, "META_MADE": metaMade,
		"META_LOOSE": metaLoose, "META_HALF_OPEN": metaHalfOpen, "META_TRACKED": metaTracked,
		"META_ADOPTED": metaAdopted, "META_WIRE": metaWire, "META_CROSS": metaCross,
		"META_FRESH": metaFresh, "NAT_PHASE": natPhase, "MAX_PORT_SPANS": forward.MaxPortRanges,
		"META_SOURCE": metaSource, "MASK_SOURCE": maskSource, "MASK_EXCEPT": maskExcept,
		"MAX_PODS": maxPods, "MAX_POD_ADDRESSES": maxPodAddresses, "CURRENT_SLOT": currentSlot,
		"CURRENT_FAST_FLOW": currentFastFlow, "CURRENT_READS": currentReads, "READ_SRC": readSrc,
		"READ_SPORT": readSport, "READ_BITS": readBits, "BLOCK": block, "TAG_MASK": tagMask,
		"TAG_LIVE": tagLive, "TAG_HALF_OPEN": tagHalfOpen, "TAG_ANSWERED": tagAnswered,
		"META_LIBERAL": metaLiberal, "NAT_FLOW": natFlow, "ADOPT_MERGE": adoptMerge,
		"ADOPT_STALE": adoptStale, "ADOPT_RESYNC": adoptResync, "LOOSE_SCALE": looseScale,
		"ADOPT_MADE": adoptMade, "ADOPT_BEHIND": adoptBehind,
		"OP_REMOVE": opRemove, "OP_SWEEP": opSweep, "OP_ADOPT": opAdopt, "OP_PURGE": opPurge,
		"OP_TICK": opTick, "OP_CLOCK": opClock, "OP_BEGIN_MOVE": opBeginMove,
		"OP_END_MOVE": opEndMove, "GONE_DELETED": goneDeleted,
	}
	for name, want := range same {
		if got, ok := c[name]; !ok || got != want {
			t.Errorf("%s is %d in C (known: %v), %d in Go", name, got, ok, want)
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
