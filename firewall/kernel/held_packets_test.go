package kernel

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// heldRules let everyone ask UDP port 80, and refuse the rest: no kernel sends a datagram twice.
const heldRules = "add 1 check-state\nadd allow udp from any to me 80 keep-state\n"

// newHeld is an upgrade in which the hosts send nothing that the test did not ask for.
func newHeld(t *testing.T) (g *pairLab, hooks []*previousHook) {
	t.Helper()
	g = newUpgrade(t, heldRules)
	for _, n := range []*nstest.Node{g.server, g.client} {
		g.must(t, n.Do(func() error {
			const path = "/proc/sys/net/ipv6/conf/all/disable_ipv6"
			return os.WriteFile(path, []byte("1"), 0)
		}))
	}
	return g, g.follow(t)
}

// held returns how many packets are held.
func (g *pairLab) held(t *testing.T) int {
	t.Helper()
	r, err := ringbuf.NewReader(g.engine.objects.HeldPackets)
	g.must(t, err)
	defer r.Close()
	// each has a header of eight bytes before it, and is as long as a multiple of eight
	return r.AvailableBytes() / (int(unsafe.Sizeof(weirHeldFrame{})+8+7) &^ 7)
}

// TestFlowsThatBeginBeforeTheSwitch: the answer to a query that met another engine after its states
// were copied waits until the flow is copied, and arrives.
func TestFlowsThatBeginBeforeTheSwitch(t *testing.T) {
	t.Parallel()
	g, hooks := newHeld(t)
	e := g.engine
	server, err := g.server.ListenPacket("udp", "10.0.0.1:80")
	g.must(t, err)
	defer server.Close()
	client, err := g.client.DialContext(t.Context(), "udp", "10.0.0.1:80")
	g.must(t, err)
	defer client.Close()
	g.send(t, client, 1, 10)
	b := make([]byte, 100)
	g.must(t, server.SetDeadline(time.Now().Add(testTimeout)))
	_, from, err := server.ReadFrom(b)
	g.must(t, err)
	g.switchHooks(t, hooks)
	_, err = server.WriteTo([]byte("answer"), from)
	g.must(t, err)
	nstest.Eventually(t, "the answer is held", func() bool { return g.held(t) == 1 })
	g.must(t, g.locked(func() error { return e.keepHooksLocked(hooks) }))
	g.must(t, client.SetReadDeadline(time.Now().Add(testTimeout)))
	if n, err := client.Read(b); err != nil || string(b[:n]) != "answer" {
		t.Errorf("the client read %q, %v", b[:n], err)
	}
	if e.config.Holding != 0 || g.held(t) != 0 {
		t.Error("refused packets are still held")
	}
	g.send(t, client, 1, 10)
	if _, _, err := server.ReadFrom(b); err != nil {
		t.Error(err)
	}
}

// TestHeldAreDecidedOnce: what the rules refuse while it is held is refused afterwards, and each
// packet is counted once. This holds also if there is no space to hold it, it is too large, or it
// begins a connection. None of them passes.
func TestHeldAreDecidedOnce(t *testing.T) {
	t.Parallel()
	g, hooks := newHeld(t)
	heard, err := g.server.ListenPacket("udp", "10.0.0.1:81")
	g.must(t, err)
	defer heard.Close()
	c, err := g.client.DialContext(t.Context(), "udp", "10.0.0.1:81")
	g.must(t, err)
	defer c.Close()
	g.switchHooks(t, hooks)
	before := g.denied(t)
	denied := func() int { return int(g.denied(t) - before) }
	g.send(t, c, 10, 100)
	nstest.Eventually(t, "small packets are held", func() bool { return g.held(t) == 10 })
	if n := denied(); n != 0 {
		t.Errorf("%d packets are counted while they are held", n)
	}
	g.send(t, c, 10, 1000)
	nstest.Eventually(t, "packets that are too large are refused", func() bool {
		return denied() == 10 && g.held(t) == 10
	})
	if c, err := g.connect("10.0.0.1:81"); err == nil {
		c.Close()
		t.Error("a refused port answers")
	}
	syns := denied() - 10
	if syns == 0 || g.held(t) != 10 {
		t.Errorf("%d SYNs are refused, %d packets are held", syns, g.held(t))
	}
	const many = 2000
	g.send(t, c, many, 50)
	nstest.Eventually(t, "each packet is held or refused", func() bool {
		return denied()+g.held(t) == 20+syns+many
	})
	if n := g.held(t); n < 500 || n >= many {
		t.Errorf("%d packets of %d found space", n, many)
	}
	g.must(t, g.locked(func() error { return g.engine.keepHooksLocked(hooks) }))
	nstest.Eventually(t, "all are refused", func() bool { return denied() >= 20+syns+many })
	if n := denied(); n != 20+syns+many || g.held(t) != 0 {
		t.Errorf("%d packets are counted afterwards, want %d", n, 20+syns+many)
	}
	g.must(t, heard.SetReadDeadline(time.Now()))
	if _, _, err := heard.ReadFrom(make([]byte, 1)); err == nil {
		t.Error("a packet passed")
	}
}

// TestHeldOfAKilledAgent: what was held when the agent was killed is not put to a hook later.
func TestHeldOfAKilledAgent(t *testing.T) {
	t.Parallel()
	g, hooks := newHeld(t)
	c, err := g.client.DialContext(t.Context(), "udp", "10.0.0.1:81")
	g.must(t, err)
	defer c.Close()
	g.switchHooks(t, hooks)
	before := g.denied(t)
	g.send(t, c, 5, 100)
	nstest.Eventually(t, "packets are held", func() bool { return g.held(t) == 5 })
	g.kill(t, hooks)
	g.open(t)
	g.interfaces(t)
	g.must(t, g.engine.Load(compile(t, heldRules)))
	g.attach(t)
	g.send(t, c, 5, 100) // behind what Attach gave to the hook
	nstest.Eventually(t, "new packets are refused", func() bool { return g.denied(t)-before >= 5 })
	if n := g.denied(t) - before; n != 5 || g.held(t) != 0 {
		t.Errorf("%d packets were refused, five of them are new; %d are held", n, g.held(t))
	}
}

func (g *pairLab) send(t *testing.T, c net.Conn, packets, size int) {
	t.Helper()
	for range packets {
		_, err := c.Write(make([]byte, size))
		g.must(t, err)
	}
}

// denied returns how many packets that came in the rules have refused.
func (g *pairLab) denied(t *testing.T) (n uint64) {
	t.Helper()
	all, err := g.engine.Decisions()
	g.must(t, err)
	for d, count := range all {
		if d.Dir == firewall.In && !d.Pass && d.Reason == firewall.ReasonRule {
			n += count.Packets
		}
	}
	return n
}

// TestChecksumOfHeld: what the NIC would have completed is completed, and nothing else is changed.
func TestChecksumOfHeld(t *testing.T) {
	t.Parallel()
	seed := testrand.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	data := func() build.Data {
		b := make([]byte, r.IntN(100))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	for range 2000 {
		var upper build.Layer = build.TCP{SrcPort: 80, DstPort: 4000, Flags: packet.FlagACK,
			Seq: r.Uint32()}
		at := 16
		if r.IntN(2) == 0 {
			upper, at = build.UDP{SrcPort: 53, DstPort: uint16(r.Uint32())}, 6
		}
		var ip build.Layer = build.IPv4{Src: netip.MustParseAddr("192.0.2.1"),
			Dst: netip.MustParseAddr("192.0.2.2")}
		start := 14 + 20
		if r.IntN(2) == 0 {
			ip, start = build.IPv6{Src: netip.MustParseAddr("fd00::1"),
				Dst: netip.MustParseAddr("fd00::2")}, 14+40
		}
		want, err := build.Packet(build.Ethernet{}, ip, upper, data())
		if err != nil {
			t.Fatal(err)
		}
		got := slices.Clone(want)
		completeChecksum(got)
		if !bytes.Equal(got, want) {
			t.Fatalf("a right checksum is changed: %x, was %x", got, want)
		}
		field := got[start+at:]
		binary.BigEndian.PutUint16(field, pseudoOf(got, start))
		completeChecksum(got)
		if !bytes.Equal(got, want) {
			t.Fatalf("%x, want %x", got, want)
		}
		field[0] ^= 1
		want = slices.Clone(got)
		completeChecksum(got)
		if !bytes.Equal(got, want) {
			t.Fatalf("a wrong checksum is changed: %x, was %x", got, want)
		}
		completeChecksum(got[:r.IntN(len(got))])
	}
}

// pseudoOf is the sum of the pseudo-header of a TCP or UDP packet, RFC 9293 3.1 and RFC 8200 8.1.
func pseudoOf(frame []byte, start int) uint16 {
	addrs, proto := frame[14+12:14+20], uint32(frame[14+9])
	if start > 14+20 {
		addrs, proto = frame[14+8:14+40], uint32(frame[14+6])
	}
	sum := proto + uint32(len(frame)-start)
	for i := 0; i < len(addrs); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(addrs[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}
