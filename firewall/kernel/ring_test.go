package kernel

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// TestProbesHaveRoom: refused packets that nobody reads fill their half of the ring, other events
// most of the rest, and still idle connections ask to be probed.
func TestProbesHaveRoom(t *testing.T) {
	e := newEngine(t)
	ifs := []firewall.Interface{{Index: 1, Name: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}}
	if err := errors.Join(e.SetInterfaces(ifs), e.Load(compile(t, webRules+"add 50 allow log udp from any to any 9\n"))); err != nil {
		t.Fatal(err)
	}
	build := func(from, to string, layer packet.Layer) []byte {
		b, err := packet.Build(packet.IPv4{Src: netip.MustParseAddr(from), Dst: netip.MustParseAddr(to)}, layer)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const me, you = "10.0.0.1", "10.0.0.2"
	now := time.Duration(monotonic())
	for _, b := range [][]byte{
		build(you, me, packet.TCP{SrcPort: 4000, DstPort: 80, Flags: packet.FlagSYN, Window: 1000}),
		build(me, you, packet.TCP{SrcPort: 80, DstPort: 4000, Seq: 9, Ack: 1, Flags: packet.FlagSYN | packet.FlagACK, Window: 1000}),
		build(you, me, packet.TCP{SrcPort: 4000, DstPort: 80, Seq: 1, Ack: 10, Flags: packet.FlagACK, Window: 1000}),
	} {
		if v, err := e.Judge(&firewall.Input{Now: now, Hook: firewall.Hook{Recv: 1}}, b); err != nil || !v.Pass {
			t.Fatalf("%+v %v", v, err)
		}
	}
	e.kinds = 1<<firewall.EventDrop | 1<<firewall.EventLog
	if err := e.watching(true); err != nil { // the kernel takes it that somebody reads
		t.Fatal(err)
	}
	flood := func(port uint16) {
		b := build(you, me, packet.UDP{SrcPort: 5000, DstPort: port})
		if _, _, err := e.objects.WeirIn.Benchmark(append(frameFor(b), b...), 20000, nil); err != nil {
			t.Fatal(err)
		}
	}
	flood(8)                                                                           // denied
	flood(9)                                                                           // logged
	for left := 15*time.Second - time.Millisecond; left > 0; left -= 5 * time.Second { // when probes are due
		at := now + time.Duration(e.config.LifeEstablished) - left
		if err := e.call.ask(&weirCall{Op: opSweep, Now: int64(at), Count: e.config.Sets}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := ringbuf.NewReader(e.objects.Events)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.SetDeadline(time.Now().Add(100 * time.Millisecond))
	kinds := map[uint8]int{}
	for {
		record, err := r.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kinds[(*weirEvent)(unsafe.Pointer(&record.RawSample[0])).Kind]++
	}
	const room = 1 << 20 / 2 / (unsafe.Sizeof(weirEvent{}) + ringbufHeader)
	if n := kinds[uint8(firewall.EventDrop)]; n < int(room)-10 || n > int(room)+10 {
		t.Errorf("%d refused packets were told, about %d have room", n, room)
	}
	if n := kinds[uint8(firewall.EventLog)]; n < int(room)/2 || n > int(room)*3/4+10 {
		t.Errorf("%d other events were told", n)
	}
	if n := kinds[eventProbe]; n < 3 {
		t.Errorf("%d probes were asked for", n)
	}
}

const ringbufHeader = 8
