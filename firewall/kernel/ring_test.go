package kernel

import (
	"errors"
	"math"
	"net/netip"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestProbesHaveRingSpace: unread refused packets fill their half of the ring, other events most of
// the rest, and still idle connections ask to be probed.
func TestProbesHaveRingSpace(t *testing.T) {
	e := newEngine(t)
	ifs := []firewall.Interface{{Index: 1, Name: "eth0",
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}}
	if err := errors.Join(e.SetInterfaces(ifs),
		e.Load(compile(t, webRules+"add 50 allow log udp from any to any 9\n"))); err != nil {
		t.Fatal(err)
	}
	mustBuild := func(from, to string, layer build.Layer) []byte {
		return enginetest.Packet(t, build.IPv4{Src: netip.MustParseAddr(from),
			Dst: netip.MustParseAddr(to)}, layer)
	}
	const me, you = "10.0.0.1", "10.0.0.2"
	now := time.Duration(monotonic())
	for _, b := range [][]byte{
		mustBuild(you, me, build.TCP{SrcPort: 4000, DstPort: 80, Flags: packet.FlagSYN,
			Window: 1000}),
		mustBuild(me, you, build.TCP{SrcPort: 80, DstPort: 4000, Seq: 9, Ack: 1,
			Flags: packet.FlagSYN | packet.FlagACK, Window: 1000}),
		mustBuild(you, me, build.TCP{SrcPort: 4000, DstPort: 80, Seq: 1, Ack: 10,
			Flags: packet.FlagACK, Window: 1000}),
	} {
		if v, err := e.Evaluate(&firewall.Input{Now: now, Hook: firewall.Hook{Recv: 1}},
			b); err != nil || !v.Pass {
			t.Fatalf("%+v %v", v, err)
		}
	}
	e.kinds = 1<<firewall.EventDrop | 1<<firewall.EventLog
	if err := e.watching(true); err != nil { // the kernel assumes a reader
		t.Fatal(err)
	}
	flood := func(port uint16) {
		b := mustBuild(you, me, build.UDP{SrcPort: 5000, DstPort: port})
		if _, _, err := e.objects.WeirIn.Benchmark(append(frameFor(b), b...), 20000,
			nil); err != nil {
			t.Fatal(err)
		}
	}
	flood(8) // denied
	flood(9) // logged
	// when probes are due
	for left := 15*time.Second - time.Millisecond; left > 0; left -= 5 * time.Second {
		at := now + time.Duration(e.config.LifeEstablished) - left
		if err := sweepAt(e, at); err != nil {
			t.Fatal(err)
		}
	}
	kinds := readRing(t, e)
	const half = 1 << 20 / 2 / (unsafe.Sizeof(weirEvent{}) + ringbufHeader)
	if n := kinds[uint8(firewall.EventDrop)]; n < int(half)-10 || n > int(half)+10 {
		t.Errorf("%d refused packets were delivered, about %d have space", n, half)
	}
	if n := kinds[uint8(firewall.EventLog)]; n < int(half)/2 || n > int(half)*3/4+10 {
		t.Errorf("%d other events were delivered", n)
	}
	if n := kinds[eventProbe]; n < 3 {
		t.Errorf("%d probes were asked for", n)
	}
}

const ringbufHeader = 8

// readRing takes all that lies in the ring of events, and counts it by kind.
func readRing(t *testing.T, e *Engine) (kinds map[uint8]int) {
	t.Helper()
	r, err := ringbuf.NewReader(e.objects.Events)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.SetDeadline(time.Now().Add(100 * time.Millisecond))
	kinds = map[uint8]int{}
	for {
		record, err := r.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return kinds
		}
		if err != nil {
			t.Fatal(err)
		}
		kinds[(*weirEvent)(unsafe.Pointer(&record.RawSample[0])).Kind]++
	}
}

// runDatagrams has the program evaluate n times the same datagram, one packet a call. A signal
// (Go's preemption is one) ends a call of many packets early, and the library then begins that call
// again.
func runDatagrams(t *testing.T, e *Engine, from, to uint16, n int) {
	t.Helper()
	b := enginetest.Packet(t, build.IPv4{Src: netip.MustParseAddr("10.0.0.2"),
		Dst: netip.MustParseAddr("10.0.0.1")}, build.UDP{SrcPort: from, DstPort: to})
	frame := append(frameFor(b), b...)
	for range n {
		if _, _, err := e.objects.WeirIn.Benchmark(frame, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEveryEventIsDeliveredOrCounted: of all events while there is no reader, from packets and from
// the sweep, each event lies in the ring or counts as lost.
func TestEveryEventIsDeliveredOrCounted(t *testing.T) {
	e := newEngine(t)
	if err := e.Load(compile(t,
		"add 10 check-state\nadd 20 allow log udp from any to any 9\n"+
			"add 30 allow udp from any to any 10 keep-state\n")); err != nil {
		t.Fatal(err)
	}
	e.kinds = 1<<firewall.EventDrop | 1<<firewall.EventLog | 1<<firewall.EventStart |
		1<<firewall.EventEnd
	if err := errors.Join(e.watching(true), e.Capture(func(*firewall.Captured) {})); err != nil {
		t.Fatal(err)
	}
	before, err := e.Stats()
	if err != nil {
		t.Fatal(err)
	}
	const many, flows = 10000, 200
	events := 0
	begin := func(from uint16) { // and end
		for i := range uint16(flows) {
			runDatagrams(t, e, from+i, 10, 1)
		}
		events += 2 * flows // each packet is captured, too
		if err := sweepAt(e, time.Duration(monotonic())+time.Hour); err != nil {
			t.Fatal(err)
		}
		events += flows
	}
	begin(20000)
	runDatagrams(t, e, 5000, 8, many) // drops and captured frames
	runDatagrams(t, e, 5000, 9, many) // logged
	events += 4 * many
	begin(30000) // in a ring that is full
	after, err := e.Stats()
	if err != nil {
		t.Fatal(err)
	}
	kinds, read := readRing(t, e), 0
	for _, n := range kinds {
		read += n
	}
	lost := int(after.Lost - before.Lost)
	if created := after.Created - before.Created; created != 2*flows || after.States != 0 {
		t.Fatalf("%d states were made, %d are left", created, after.States)
	}
	if read+lost != events {
		t.Errorf("%d events lie in the ring (%v), %d are lost: %d of %d", read, kinds, lost,
			read+lost, events)
	}
	if lost < many || kinds[uint8(firewall.EventEnd)] < flows {
		t.Errorf("%d are lost, %v delivered: the ring was not full", lost, kinds)
	}
}

// TestLogAmountDoesNotBeginAgain: however many packets a rule matches after its last event, it
// emits no more: the count stops at logamount.
func TestLogAmountDoesNotBeginAgain(t *testing.T) {
	e := newEngine(t)
	for _, c := range []struct {
		most          string
		before, after uint32
		events        int
	}{
		{"2", 0, 2, 2},
		{"2", 1, 2, 1},
		{"2", math.MaxUint32, math.MaxUint32, 0},
		{"4294967295", math.MaxUint32 - 1, math.MaxUint32, 1},
	} {
		if err := e.Load(compile(t, "add 10 deny log logamount "+c.most+
			" udp from any to any 9\n")); err != nil {
			t.Fatal(err)
		}
		e.kinds = 1 << firewall.EventLog
		if err := e.watching(true); err != nil { // the kernel assumes a reader
			t.Fatal(err)
		}
		index := e.rules[0].Id & 0xffff
		if err := e.objects.Logged.Put(index, c.before); err != nil {
			t.Fatal(err)
		}
		runDatagrams(t, e, 5000, 9, 5)
		var after uint32
		if err := e.objects.Logged.Lookup(index, &after); err != nil {
			t.Fatal(err)
		}
		kinds := readRing(t, e)
		if n := kinds[uint8(firewall.EventLog)]; n != c.events || after != c.after {
			t.Errorf("logamount %s after %d events: %d more, and the count is %d", c.most, c.before,
				n, after)
		}
	}
}
