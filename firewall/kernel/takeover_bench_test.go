package kernel

import (
	"encoding/binary"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
)

// BenchmarkTakeOver measures what the start of an agent takes where the one before has left a
// million states: opening the engine with its programs, and the first Load, with tables of the same
// size and of another. Run with -benchtime 1x.
func BenchmarkTakeOver(b *testing.B) {
	nstest.Root(b)
	dir := filepath.Join(nstest.Bpffs(b), "weir")
	const million = 1 << 20
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxPerSource = 2*million, 2*million, 0
	o.Timeouts.UDP, o.Timeouts.UDPReply = time.Hour, time.Hour
	program := compile(b, "add check-state\nadd allow udp from any to any keep-state\n")
	open := func(name string) *Engine {
		began := time.Now()
		e, err := Open(Config{Dir: dir, Options: o})
		if err != nil {
			b.Fatalf("%+v", err)
		}
		opened := time.Since(began)
		if err := e.Load(program); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(opened.Seconds(), name+"-open-s")
		b.ReportMetric(time.Since(began).Seconds()-opened.Seconds(), name+"-load-s")
		return e
	}
	e := open("first")
	frame, err := build.Packet(build.IPv4{Src: netip.MustParseAddr("10.0.0.2"),
		Dst: netip.MustParseAddr("10.0.0.1")}, build.UDP{SrcPort: 4000, DstPort: 53})
	if err != nil {
		b.Fatal(err)
	}
	for i := range uint32(million) {
		binary.BigEndian.PutUint32(frame[12:], 20<<24|i) // checksums do not matter here
		in := &firewall.Input{Now: time.Duration(monotonic()), Hook: firewall.Hook{Recv: 1}}
		if v, err := e.Evaluate(in, frame); err != nil || !v.Pass {
			b.Fatalf("%d: %+v %v", i, v, err)
		}
	}
	for _, name := range []string{"same", "resized"} {
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
		if name == "resized" {
			o.MaxStates += million
		}
		if e = open(name); !e.TakenOver() && e.Migrated() == 0 {
			b.Fatal("nothing was taken over")
		}
		n := 0
		for _, err := range e.States() {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n < million*99/100 {
			b.Errorf("%s: %d states", name, n)
		}
	}
	if err := e.Close(); err != nil {
		b.Fatal(err)
	}
}
