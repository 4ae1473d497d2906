package kernel

import (
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestTracksAreEvicted: SYNs of forged sources hold every track of a limit. Each new client gets
// one; what is established keeps its own, and a source at its limit gets no more, also when the
// track was given away in between.
func TestTracksAreEvicted(t *testing.T) {
	rules := "add check-state\nadd allow tcp from any to me 80 setup limit src-addr 2\n" +
		"add deny ip from any to any\n"
	b := newBench(t, rules, func(o *firewall.Options) { o.MaxTracks = 64 })
	limited := func(peer netip.Addr) {
		t.Helper()
		if v := b.segment(true, peer, 9, packet.FlagSYN, 1, 0,
			0); v.Reason != firewall.ReasonLimit {
			t.Errorf("a third connection of %s: %+v", peer, v)
		}
	}
	flood := func(from int) {
		t.Helper()
		for i := range 1000 {
			if v := b.segment(true, outsider(from+i), 5, packet.FlagSYN, 1, 0, 0); !v.Pass {
				t.Fatalf("SYN %d: %+v", i, v)
			}
		}
	}
	old := outsider(1 << 20)
	if !b.connect(old, 1) || !b.connect(old, 2) {
		t.Fatal("connections do not open")
	}
	limited(old)
	// One is being opened when its track is given away, and a second one, and a third that finds
	// the track again.
	slow := outsider(1 << 21)
	b.segment(true, slow, 1, packet.FlagSYN, 100, 0, 0)
	b.segment(false, slow, 1, packet.FlagSYN|packet.FlagACK, 900, 101, 0)
	flood(0)
	for i := range 200 {
		if !b.connect(outsider(1<<22+i%8), uint16(1+i/8%2)) {
			t.Errorf("connection %d does not open", i)
		}
	}
	b.segment(true, slow, 1, packet.FlagACK, 101, 901, 0)
	if !b.works(slow, 1) || !b.connect(slow, 2) {
		t.Error("the slow client has lost its connection")
	}
	limited(slow)
	flood(2000)
	limited(old)
	limited(slow)
	if !b.works(old, 1) || !b.works(old, 2) {
		t.Error("what was established is gone")
	}
	// Now every track is kept.
	full := 0
	for i := range 300 {
		if v := b.segment(true, outsider(1<<23+i), 1, packet.FlagSYN, 100, 0, 0); !v.Pass {
			if v.Reason != firewall.ReasonTracksFull {
				t.Fatalf("%+v", v)
			}
			full++
			continue
		}
		b.segment(false, outsider(1<<23+i), 1, packet.FlagSYN|packet.FlagACK, 900, 101, 0)
		b.segment(true, outsider(1<<23+i), 1, packet.FlagACK, 101, 901, 0)
	}
	if full < 200 {
		t.Errorf("with all tracks in use %d of 300 are refused", full)
	}
	// When all is over, nothing is counted.
	b.now += time.Hour
	if err := sweepAt(b.e, b.now); err != nil {
		t.Fatal(err)
	}
	if n := b.e.agreeTracks(t); n != 0 {
		t.Errorf("the tracks count %d states", n)
	}
}

// TestOnePacketProvesTwoTrackedStates: neither waits for the next packet, and both keep their
// tracks from then on.
func TestOnePacketProvesTwoTrackedStates(t *testing.T) {
	b := newBench(t, "add 1 count tcp from any to me 80 limit src-addr 2 :seen\n"+
		"add 2 allow tcp from any to me 80 limit src-addr 2 :open\n",
		func(o *firewall.Options) { o.MaxTracks = 16 })
	if !b.connect(outsider(1), 1) {
		t.Fatal("the connection does not open")
	}
	if s := b.stats(); s.States != 2 || s.HalfOpen != 0 {
		t.Errorf("%d states, %d of them half-open, after a handshake", s.States, s.HalfOpen)
	}
	for i := range 1000 {
		b.segment(true, outsider(10+i), 5, packet.FlagSYN, 1, 0, 0)
	}
	if !b.connect(outsider(1), 2) {
		t.Error("a second connection does not open")
	}
	if v := b.segment(true, outsider(1), 3, packet.FlagSYN, 1, 0,
		0); v.Reason != firewall.ReasonLimit {
		t.Errorf("a third one: %+v", v)
	}
}

// TestStateEndsWhileItEntersItsTrackAgain: the track of a state was given to another tuple. When
// the state proves itself it enters one of its own tuple again, and another CPU removes it at that
// moment: before or after it is counted there. It counts nowhere in the end. Otherwise the limit
// would be lower from then on.
func TestStateEndsWhileItEntersItsTrackAgain(t *testing.T) {
	for name, c := range map[string]struct {
		function, in string
		nth          int
		removed      func(own *entry) store
	}{
		"before": {"mask_at", "states", 1, func(own *entry) store {
			flags := unsafe.Offsetof(weirSet{}.Side) + unsafe.Offsetof(weirSide{}.Flags) +
				uintptr(own.place%ways*2)*unsafe.Sizeof(weirSide{})
			return store{"states", own.place / ways, int16(flags), asm.Word,
				uint64(own.sides[0].Flags &^ metaTracked)}
		}},
		"after": {"count_proved_in_track", "tracks", 3, func(own *entry) store {
			return store{"tags", own.place / ways, int16(own.place%ways) * 8, asm.DWord, freeTag}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			run := func(back bool) {
				t.Helper()
				if _, err := e.objects.WeirIn.Run(
					&ebpf.RunOptions{Data: udpFrame(t, 0, back)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.Load(compile(t, "add check-state\n"+
				"add allow udp from any to any limit src-addr 1\n")); err != nil {
				t.Fatal(err)
			}
			run(false)
			run(true)
			var own *entry
			for x, err := range e.entries() {
				if err != nil || own != nil {
					t.Fatalf("not one state: %v", err)
				}
				own = x
			}
			track := own.sides[0].Track - 1
			var set weirTrackSet
			if err := e.objects.Tracks.Lookup(track/ways, &set); err != nil {
				t.Fatal(err)
			}
			at := &set.Track[track%ways]
			at.Era, at.Held, set.Tag[track%ways] = at.Era+1, uint64(at.Era+1)<<56, 0
			if err := e.objects.Tracks.Put(track/ways, &set); err != nil {
				t.Fatal(err)
			}
			spec := committed(t)
			e.sizeAsLoaded(spec)
			meanwhileStore(t, spec.Programs["weir_in_slow"], c.function, c.in, c.nth,
				c.removed(own))
			var late *ebpf.Program
			if err := e.load(spec, map[string]**ebpf.Program{"weir_in_slow": &late}); err != nil {
				t.Fatalf("%+v", err)
			}
			defer late.Close()
			if err := e.objects.SlowPaths.Put(uint32(slowIn), late); err != nil {
				t.Fatal(err)
			}
			run(false)
			if n := e.agreeTracks(t); n != 0 {
				t.Errorf("the tracks count %d states", n)
			}
		})
	}
}

// beginMove begins the move of the only state to its other set, to the place `to`; end ends it, on
// the same CPU.
func (b *bench) beginMove() (end func(), to int64) {
	b.t.Helper()
	place := -1
	for x, err := range b.e.entries() {
		if err != nil || place >= 0 {
			b.t.Fatalf("more than one state, or %v", err)
		}
		place = int(x.place)
	}
	c := weirCall{Op: opBeginMove, Place: uint32(place), Now: int64(b.now)}
	if err := b.e.call.ask(&c); err != nil || c.Result == 0 {
		b.t.Fatalf("begin: %d %v", c.Result, err)
	}
	to = c.Result - 1
	return func() {
		b.t.Helper()
		c := weirCall{Op: opEndMove, Place: uint32(place), Now: int64(b.now)}
		if err := b.e.call.ask(&c); err != nil || c.Result != 1 {
			b.t.Fatalf("end: %d %v", c.Result, err)
		}
	}, to
}

// TestMovingStateIsPromoted: the packet that proves a state comes while the state moves to its
// other set, and cannot promote it. The next one does.
func TestMovingStateIsPromoted(t *testing.T) {
	stayOnFirstCPU(t)
	b := newBench(t, "add check-state\nadd allow udp from any to any keep-state\n",
		func(*firewall.Options) {})
	peer := outsider(1)
	ask := func() {
		b.evaluate(firewall.In, peer, benchHost, build.UDP{SrcPort: 5000, DstPort: 53})
	}
	ask()
	b.evaluate(firewall.Out, benchHost, peer, build.UDP{SrcPort: 53, DstPort: 5000})
	end, _ := b.beginMove()
	ask()
	end()
	if s := b.stats(); s.HalfOpen != 1 {
		t.Fatalf("this test could not fail: %d states are half-open", s.HalfOpen)
	}
	ask()
	if s := b.stats(); s.States != 1 || s.HalfOpen != 0 {
		t.Errorf("%d states are counted, %d half-open", s.States, s.HalfOpen)
	}
}

// TestMovingStateIsFound: look-ups find a state at every step of its move to its other set, so no
// `reset` rule meets its packets.
func TestMovingStateIsFound(t *testing.T) {
	stayOnFirstCPU(t)
	b := newBench(t,
		"add check-state\nadd allow tcp from any to me 80 setup keep-state\n"+
			"add reset tcp from any to any\n", func(*firewall.Options) {})
	peer := outsider(1)
	for _, open := range []bool{false, true} {
		if open {
			b.connect(peer, 7)
		} else {
			b.segment(true, peer, 7, packet.FlagSYN, 100, 0, 0)
		}
		goes := func(when string) {
			t.Helper()
			v := b.segment(true, peer, 7, packet.FlagSYN, 100, 0, 0)
			if open {
				v = b.segment(false, peer, 7, packet.FlagACK, 901, 101, 10)
			}
			if !v.Pass || v.State == firewall.StateNew || v.Answer != 0 {
				t.Errorf("%s: %+v", when, v)
			}
		}
		for range 3 {
			goes("before")
			end, to := b.beginMove()
			goes("while it moves")
			end()
			goes("after")
			for x := range b.e.entries() {
				if int64(x.place) != to {
					t.Errorf("the state is at %d, not at %d", x.place, to)
				}
			}
			b.now += 100 * time.Millisecond
		}
	}
	if s := b.stats(); s.States != 1 || s.HalfOpen != 0 {
		t.Errorf("%d states are counted, %d half-open", s.States, s.HalfOpen)
	}
	if n := b.e.sourcesInUse(t); n != 0 {
		t.Errorf("the counters of sources add up to %d", n)
	}
}
