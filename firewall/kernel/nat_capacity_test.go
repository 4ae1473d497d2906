package kernel

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// setConfig changes the programs' settings.
func (v *cluster) setConfig(change func(c *weirConfig)) {
	v.t.Helper()
	v.engine.mu.Lock()
	defer v.engine.mu.Unlock()
	change(&v.engine.config)
	v.must(v.engine.putConfigLocked())
}

// TestHostKeepsCapacity fills all places that translations may have, by queries through a published
// port and connections from pods: the host's own connections are made all the while.
func TestHostKeepsCapacity(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.masquerade(2000, 60000)
	f.publish(8080, 80)
	f.serve(f.outside, 7)
	f.setConfig(func(c *weirConfig) {
		c.MaxStates, c.MaxNats, c.MaxPodNats, c.Batch = 2600, 150, 150, 1
	})
	for i := range 2000 {
		client := end(outsideAddr, 10000+i)
		if code, _, _ := f.send(client, end(hostAddr, 8080), build.UDP{}); code != redirected {
			t.Fatalf("question %d through the port: %d", i, code)
		}
		if code, src, _ := f.send(end(podA, 80), client, build.UDP{}); code != redirected ||
			src != end(hostAddr, 8080) {
			t.Fatalf("answer %d: %d from %s", i, code, src)
		}
		if i%100 == 99 {
			if err := exchange(f.host, "192.0.2.2:7"); err != nil {
				t.Fatalf("the host's own connection after %d questions: %v", i, err)
			}
		}
	}
	if n := natRefused(t, f.cluster); n != 0 {
		t.Errorf("%d packets were refused", n)
	}
	if n := len(f.pairs()); n > 150 {
		t.Errorf("%d translations", n)
	}
}

// TestMissingHalfOfATranslation takes one entry of a translation away, as no code does: the
// client's next packet makes a whole one again.
func TestMissingHalfOfATranslation(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	for _, half := range []uint32{0, metaWire} {
		client := end(outsideAddr, 4000)
		f.send(client, end(hostAddr, 8080), build.UDP{})
		states, err := f.engine.objects.States.Memory()
		f.must(err)
		tags, err := f.engine.objects.Tags.Memory()
		f.must(err)
		var s weirSet
		for x, err := range f.engine.entries() {
			f.must(err)
			if !x.translation() {
				continue
			}
			n, way := int64(x.place/ways), int64(x.place%ways)
			for i := range x.sides { // long ago
				d := x.sides[i]
				d.Created -= 5e9
				at := n*int64(unsafe.Sizeof(s)) + int64(unsafe.Offsetof(s.Side)) +
					(2*way+int64(i))*int64(unsafe.Sizeof(d))
				_, err := states.WriteAt(bytesOf([]weirSide{d}), at)
				f.must(err)
			}
			if x.sides[0].Flags&metaWire == half {
				_, err := tags.WriteAt(bytesOf([]uint64{0}), n*int64(unsafe.Sizeof(weirTagLine{}))+
					8*way)
				f.must(err)
				zero := uint32(0)
				var g weirGauge
				f.must(f.engine.objects.Gauges.Lookup(zero, &g))
				if half == 0 { // the inner one is what is counted
					g.Nats--
				}
				g.States--
				f.must(f.engine.objects.Gauges.Put(zero, g))
			}
		}
		for i := range 15 {
			if code, _, to := f.send(client, end(hostAddr, 8080),
				build.UDP{}); code != redirected ||
				to != end(podA, 80) {
				t.Errorf("half %x, datagram %d: %d to %s", half, i, code, to)
			}
		}
		if len(f.pairs()) != 1 {
			t.Errorf("half %x: %d translations", half, len(f.pairs()))
		}
		f.must(f.engine.endWhere(func(*entry) bool { return true }))
	}
}

// TestPortsRevealNothingOfTheTable: the ports that a pod gets do not depend on the keys that say
// where states lie. There are three, for the keys may agree on one by chance.
func TestPortsRevealNothingOfTheTable(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 60000)
	ports := func(change int) (all [3]uint16) {
		f.must(f.engine.endWhere(func(*entry) bool { return true }))
		if change >= 0 {
			f.setConfig(func(c *weirConfig) {
				for i := range 10 {
					c.Seed[change+i] ^= 0x5555555555555555
				}
			})
		}
		for i := range all { // the pod's own port is hashed, the destination is not
			_, src, _ := f.send(end(podA, 1000+i), end(outsideAddr, 9), build.UDP{})
			all[i] = src.Port()
		}
		return all
	}
	const table, nat = 0, 12 // SEED_TABLE, SEED_NAT
	first := ports(-1)
	if again := ports(table); again != first {
		t.Errorf("with other keys of the table the ports are %d, not %d", again, first)
	}
	if other := ports(nat); other == first {
		t.Errorf("with other keys of their own the ports are %d, too", other)
	}
}

// TestPortsOfTheHost: a port that is published, or that a socket of the host has, is not given to a
// pod.
func TestPortsOfTheHost(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.masquerade(3000, 3003)
	l, err := f.host.Listen("tcp4", "0.0.0.0:3000")
	f.must(err)
	defer l.Close()
	f.must(f.host.Do(func() error {
		return f.engine.SetPublished([]forward.Published{{Proto: packet.ProtoTCP,
			Host: end(hostAddr, 3001), Pod: end(podB, 80)}})
	}))
	for i := range 20 {
		code, src, _ := f.send(end(podA, 3000+i), end(outsideAddr, 9),
			build.TCP{Seq: uint32(i), Flags: packet.FlagSYN, Window: 1000})
		if code != redirected || src.Port() != 3002 && src.Port() != 3003 {
			t.Errorf("connection %d: %d from %s", i, code, src)
		}
	}
	for name, x := range f.pairs() {
		if x.phase() != flow.PhaseOpening {
			t.Errorf("%s: %s", name, x.phase())
		}
	}
}

// TestCookiesRevealNothingOfTheTable: the time stamp of an answer to a SYN does not depend on the
// keys that say where states lie, but on keys of its own.
func TestCookiesRevealNothingOfTheTable(t *testing.T) {
	g := newPairLab(t, webRules)
	listenTCP(t, g.server, "[::]:8080")
	rules := "add check-state\nadd 100 allow tcp from any to me 8080 setup keep-state\n"
	if err := g.engine.Load(compile(t, rules)); err != nil {
		t.Fatal(err)
	}
	g.needCookies(t)
	g.keepCookiesOn(t)
	src := netip.MustParseAddr("12.0.0.1")
	syn := enginetest.Packet(t, build.IPv4{Src: src, Dst: netip.MustParseAddr("10.0.0.1")},
		build.TCP{SrcPort: 5000, DstPort: 8080, Seq: 7, Flags: packet.FlagSYN, Window: 64240,
			Options: []byte{8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1}})
	// stamp is the time stamp of an answer, less the clock before and after it.
	stamp := func(change int) (most, least uint32) {
		e := g.engine
		e.mu.Lock()
		for i := range 10 {
			if change >= 0 {
				e.config.Seed[change+i] ^= 0x5555555555555555
			}
		}
		err := e.putConfigLocked()
		e.mu.Unlock()
		_, bad := e.ageAnswers(time.Hour) // or it would be one that is repeated
		out := make([]byte, 256)
		o := &ebpf.RunOptions{Data: append(frameFor(syn), syn...), DataOut: out}
		begin := uint32(monotonic() / 1e6)
		err = errors.Join(err, bad, g.server.Do(func() error {
			_, err := e.objects.WeirIn.Run(o)
			return err
		}))
		end := uint32(monotonic() / 1e6)
		if err != nil {
			t.Fatal(err)
		}
		for at := 14 + 40; at+10 <= len(o.DataOut); {
			switch kind := o.DataOut[at]; {
			case kind == 8:
				s := binary.BigEndian.Uint32(o.DataOut[at+2:])
				return s - begin, s - end
			case kind < 2:
				at++
			default:
				at += int(o.DataOut[at+1])
			}
		}
		t.Fatalf("no time stamp in %x", o.DataOut)
		return 0, 0
	}
	most, least := stamp(-1)
	// The programs' clock is not exactly this one, and the stamp holds more than the clock.
	const off = 1000
	same := func(change int) bool {
		m, l := stamp(change)
		return int32(m-least) >= -off && int32(most-l) >= -off
	}
	const table, cookie = 0, 22 // SEED_TABLE, SEED_COOKIE
	if !same(table) {
		t.Error("with other keys of the table the stamp is another one")
	}
	if same(cookie) {
		t.Error("with other keys of its own the stamp is the same")
	}
}
