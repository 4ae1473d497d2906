package kernel

import (
	"bytes"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// clientAmid sends the first packet of flows to a published port until the translation of one
// leaves ways on both sides of its inner entry and behind its wire entry. It returns the client's
// port and both entries.
func (f *frames) clientAmid() (port int, inner, wire *entry) {
	f.t.Helper()
	for port = 10000; ; port++ {
		f.send(end(outsideAddr, port), end(hostAddr, 8080), build.UDP{})
		inner, wire = f.halves()
		f.must(f.engine.endWhere(func(*entry) bool { return true }))
		if inner != nil && wire != nil && inner.place%ways > 0 && inner.place%ways < ways-1 &&
			wire.place%ways < ways-1 && inner.place/ways != wire.place/ways {
			return port, inner, wire
		}
	}
}

// halves returns the entries of the only translation, nil if there is none.
func (f *frames) halves() (inner, wire *entry) {
	f.t.Helper()
	for x, err := range f.engine.entries() {
		f.must(err)
		if !x.translation() { // a state
			continue
		}
		if x.sides[0].Flags&metaWire == 0 {
			inner = x
		} else {
			wire = x
		}
	}
	return inner, wire
}

// setTag sets the tag at a place, tagAt returns it.
func (f *frames) setTag(place uint32, tag uint64) {
	f.t.Helper()
	var line weirTagLine
	f.must(f.engine.objects.Tags.Lookup(place/ways, &line))
	line.Tag[place%ways] = tag
	f.must(f.engine.objects.Tags.Put(place/ways, &line))
}

func (f *frames) tagAt(place uint32) uint64 {
	f.t.Helper()
	var line weirTagLine
	f.must(f.engine.objects.Tags.Lookup(place/ways, &line))
	return line.Tag[place%ways]
}

// copyTo writes the addresses and sides of an entry, with the place of its partner, to a place of
// its set. It is younger than any packet.
func (f *frames) copyTo(x *entry, place, partner uint32) {
	f.t.Helper()
	var s weirSet
	f.must(f.engine.objects.States.Lookup(place/ways, &s))
	at := place % ways
	s.Addr[at] = s.Addr[x.place%ways]
	for i := range uint32(2) {
		side := x.sides[i]
		side.Last += int64(time.Hour)
		side.Created += int64(time.Hour)
		s.Side[at*2+i] = side
	}
	s.Side[at*2].Track = partner
	f.must(f.engine.objects.States.Put(place/ways, &s))
}

// sendMeanwhile sends the first packet of a client while another CPU sets the tag at a place: see
// meanwhile.
func (f *frames) sendMeanwhile(port int, function, in string, place uint32,
	tag uint64) (code int32, from netip.AddrPort) {
	f.t.Helper()
	t := f.t.(*testing.T)
	spec := committed(t)
	f.engine.sizeAsLoaded(spec)
	meanwhile(t, spec.Programs["weir_in_slow"], function, in, 1, place, tag)
	var late *ebpf.Program
	f.must(f.engine.load(spec, map[string]**ebpf.Program{"weir_in_slow": &late}))
	defer late.Close()
	f.must(f.engine.objects.SlowPaths.Put(uint32(slowIn), late))
	code, from, _ = f.send(end(outsideAddr, port), end(hostAddr, 8080), build.UDP{})
	return code, from
}

const (
	identity  = ^uint64(14) // TAG_IDENTITY, also the tag of an entry that the slow path fills
	fastClaim = 4           // fast_claim: TAG_HALF_OPEN
	freeTag   = 1 << 3      // of an entry that is free from the second tick on
	published = 1 << 30     // META_PUBLISHED
)

// TestTranslationsInOppositeOrder: two CPUs make the translation of one flow. The inner entry of
// the one lies first, and the wire entry of the other. The one that finds the other's translation
// last does not end it if its own is the one that goes: otherwise none would be left.
func TestTranslationsInOppositeOrder(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	port, inner, wire := f.clientAmid()
	otherInner, otherWire := inner.place-1, wire.place+1
	f.setTag(inner.place, 0)
	f.setTag(wire.place, 0)
	f.copyTo(inner, otherInner, otherWire)
	f.copyTo(wire, otherWire, otherInner)
	f.setTag(otherInner, inner.tag&identity)
	f.setTag(otherWire, wire.tag&identity)
	// The other translation becomes live when this CPU has looked for its inner entry. For the
	// test it is enough if its wire entry does.
	f.sendMeanwhile(port, "join_halves", "states", otherWire, wire.tag)
	if tag := f.tagAt(otherWire); tag != wire.tag {
		t.Errorf("the wire entry of the translation that lies first has the tag %x", tag)
	}
	if tag := f.tagAt(wire.place); tag&3 == 3 {
		t.Errorf("the other one is there, too")
	}
}

// TestTranslationsToDifferentPorts: two CPUs make translations of one flow, with different ports of
// the client. The one that finds the other's translation follows it, wherever they lie: the other's
// packet may be on its way, and the answer to it needs its translation.
func TestTranslationsToDifferentPorts(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	port, inner, wire := f.clientAmid()
	flip := uint64(1) << 32 // the lowest bit of the client's port, which is one of two in the tag
	if uint16(inner.tag>>32) != uint16(port) {
		flip <<= 16
	}
	other := end(outsideAddr, port^1)
	otherInner, otherWire := inner.place+1, wire.place+1
	f.setTag(inner.place, 0)
	f.setTag(wire.place, 0)
	f.copyTo(inner, otherInner, otherWire)
	f.copyTo(wire, otherWire, otherInner)
	f.setTag(otherInner, inner.tag^flip)
	f.setTag(otherWire, wire.tag&identity)
	code, from := f.sendMeanwhile(port, "join_halves", "states", otherWire, wire.tag)
	if code != redirected || from != other {
		t.Errorf("the second packet: %d, from %v, want %v", code, from, other)
	}
	if tag := f.tagAt(otherWire); tag != wire.tag {
		t.Errorf("the wire entry of the other translation has the tag %x", tag)
	}
	if tag := f.tagAt(wire.place); tag&3 == 3 {
		t.Errorf("ours is there, too")
	}
}

// TestHalfOfALostTranslation: another CPU has ended a translation while only the inner entry was
// live. The CPU that made it leaves no wire entry, behind which the flow would have no translation
// for a second.
func TestHalfOfALostTranslation(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	port, inner, wire := f.clientAmid()
	f.setTag(inner.place, 0)
	f.setTag(wire.place, 0)
	f.copyTo(inner, inner.place-1, 0)
	f.setTag(inner.place-1, inner.tag&identity|fastClaim) // what this CPU's entry gives way to
	f.sendMeanwhile(port, "resolve_duplicates", "tags", inner.place, freeTag)
	for x, err := range f.engine.entries() {
		f.must(err)
		if x.translation() {
			t.Errorf("half of a translation is left at %d", x.place)
		}
	}
}

// TestWaitForTheOtherFirstPacket: another CPU has the other first packet of a flow to a published
// port. It makes the state after this CPU has looked for one, and marks it and makes the
// translation after this CPU has found it. This one waits, and follows.
func TestWaitForTheOtherFirstPacket(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	client, host, pod := end(outsideAddr, 5000), end(hostAddr, 8080), end(podA, 80)
	f.goes("the other first packet", client, host, build.UDP{}, client, pod)
	state := f.stateOf(client, pod)
	for i := range state.sides {
		state.sides[i].Flags &^= published
	}
	inner, wire := f.halves()
	f.copyTo(state, state.place, 0)
	f.copyTo(inner, inner.place, wire.place)
	f.copyTo(wire, wire.place, inner.place)
	spec := committed(t)
	f.engine.sizeAsLoaded(spec)
	for _, m := range []struct {
		function, in string
		shown        *entry
	}{{"look_up", "images", state}, {"is_other_flow", "states", inner},
		{"find_first", "cpus", wire}} {
		f.setTag(m.shown.place, m.shown.tag&identity)
		meanwhile(t, spec.Programs["weir_in_slow"], m.function, m.in, 1, m.shown.place, m.shown.tag)
	}
	var late *ebpf.Program
	f.must(f.engine.load(spec, map[string]**ebpf.Program{"weir_in_slow": &late}))
	defer late.Close()
	f.must(f.engine.objects.SlowPaths.Put(uint32(slowIn), late))
	f.goes("the packet", client, host, build.UDP{}, client, pod)
	if n := len(f.pairs()); n != 1 {
		t.Errorf("%d translations", n)
	}
}

// TestHostFollowsItsOtherFirstPacket: a packet of the host to its own published port, which another
// CPU translates at the same time, follows that translation, although it has chosen another port.
func TestHostFollowsItsOtherFirstPacket(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	_, frame := f.frame(end(hostAddr, 5000), end(hostAddr, 8080), build.UDP{}, 0)
	code, first := f.run(f.engine.objects.WeirLocal, loopback, loopback, frame)
	if code != redirected {
		t.Fatalf("the first packet: %d", code)
	}
	inner, wire := f.halves()
	f.copyTo(inner, inner.place, wire.place)
	f.copyTo(wire, wire.place, inner.place)
	f.setTag(wire.place, wire.tag&identity)
	spec := committed(t)
	f.engine.sizeAsLoaded(spec)
	meanwhile(t, spec.Programs["weir_local"], "nat_create", "pods", 1, wire.place, wire.tag)
	var late *ebpf.Program
	f.must(f.engine.load(spec, map[string]**ebpf.Program{"weir_local": &late}))
	defer late.Close()
	code, second := f.run(late, loopback, loopback, frame)
	if code != redirected || !bytes.Equal(first, second) {
		t.Errorf("the second packet: %d\n%x, the first was\n%x", code, second, first)
	}
	if n := len(f.pairs()); n != 1 {
		t.Errorf("%d translations", n)
	}
}

// TestOnlyFirstPacketsWait: a packet to a published port does not wait for a translation that no
// other CPU makes, because a young state has its ends in the pod. That is the state of a connection
// to the pod itself that is over, or of a SYN whose translation was evicted. An outsider could send
// any number of such packets.
func TestOnlyFirstPacketsWait(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	client, host, pod := end(outsideAddr, 5000), end(hostAddr, 8080), end(podA, 80)
	tcp := func(seq uint32, flags uint8) build.TCP {
		return build.TCP{Seq: seq, Flags: flags, Window: 1000}
	}
	spec := committed(t)
	f.engine.sizeAsLoaded(spec)
	const unused, mark = 0, 1 << 60 // the tag of an entry that is free for a long time
	meanwhile(t, spec.Programs["weir_in_slow"], "find_first", "cpus", 1, unused, mark)
	var watched *ebpf.Program
	f.must(f.engine.load(spec, map[string]**ebpf.Program{"weir_in_slow": &watched}))
	defer watched.Close()
	f.must(f.engine.objects.SlowPaths.Put(uint32(slowIn), watched))
	for name, c := range map[string]struct {
		to   netip.AddrPort
		ends bool // by a reset
	}{"over": {pod, true}, "translation evicted": {host, false}} {
		f.must(f.engine.endWhere(func(*entry) bool { return true }))
		f.goes("a SYN", client, c.to, tcp(100, packet.FlagSYN), client, pod)
		if c.ends {
			f.goes("its end", client, c.to, tcp(101, packet.FlagRST), client, pod)
		}
		f.must(f.engine.endWhere((*entry).translation))
		state := f.stateOf(client, pod)
		f.copyTo(state, state.place, 0)
		if code, src, dst := f.send(client, host, tcp(5000, packet.FlagRST)); code != wasShot {
			t.Errorf("%s: %d, %s > %s", name, code, src, dst)
		}
		if f.tagAt(unused) == mark {
			t.Errorf("%s: the packet has waited", name)
		}
		f.setTag(unused, 0)
	}
}

// TestPhaseOfTheLaterPacket: while the CPU of a reset records that the connection has ended,
// another one records what was so before. The reset tries again: otherwise the translation would
// count as that of a living connection.
func TestPhaseOfTheLaterPacket(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 3000)
	wire, server := f.shake(end(podA, 2500), end(outsideAddr, 80))
	inner := f.only()
	var s weirSet
	high := 2*(inner.place%ways) + 1
	at := unsafe.Offsetof(s.Side) + unsafe.Sizeof(s.Side[0])*uintptr(high) +
		unsafe.Offsetof(s.Side[0].Track)
	spec := committed(t)
	f.engine.sizeAsLoaded(spec)
	closing := uint64(inner.sides[1].Track&^7) | uint64(flow.PhaseClosing)
	meanwhileStore(t, spec.Programs["weir_in_slow"], "record_phase", "states", 2,
		store{"states", inner.place / ways, int16(at), asm.Word, closing})
	var late *ebpf.Program
	f.must(f.engine.load(spec, map[string]**ebpf.Program{"weir_in_slow": &late}))
	defer late.Close()
	f.must(f.engine.objects.SlowPaths.Put(uint32(slowIn), late))
	f.goes("the reset", server, wire, build.TCP{Seq: 1000, Flags: packet.FlagRST}, server,
		end(podA, 2500))
	if phase := f.only().phase(); phase != flow.PhaseReset {
		t.Errorf("the phase is %s", phase)
	}
}
