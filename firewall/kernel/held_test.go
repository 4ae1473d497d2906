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

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestFlowsThatBeginBeforeTheSwitch: a connection whose SYN met another engine after its states
// were copied opens when the hooks are ours, without a second SYN: the answer waits until the flow
// is copied.
func TestFlowsThatBeginBeforeTheSwitch(t *testing.T) {
	t.Parallel()
	g := newUpgrade(t)
	e, hooks := g.engine, g.follow(t)
	// The server's answer waits until it knows the client's link-layer address.
	g.must(t, g.client.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("8"), 0)
	}))
	run(t, g.client, "ip neigh replace 10.0.0.1 dev eth0 nud permanent lladdr "+mac(t, g.server))
	run(t, g.server, "ip neigh flush dev eth0")
	type result struct {
		c   net.Conn
		err error
	}
	dialed := make(chan result, 1)
	go func() {
		c, err := g.dial("10.0.0.1:80")
		dialed <- result{c, err}
	}()
	nstest.Eventually(t, "the server has the SYN", func() bool {
		out, err := g.server.Command("ip", "neigh", "show", "10.0.0.2").Output()
		return err == nil && bytes.Contains(out, []byte("INCOMPLETE"))
	})
	g.must(t, g.locked(func() error { return e.switchHooksLocked(nil, hooks) }))
	run(t, g.server, "ip neigh replace 10.0.0.2 dev eth0 nud permanent lladdr "+mac(t, g.client))
	select {
	case <-dialed:
		t.Fatal("the SYN-ACK passed: its flow is known before it is copied")
	case <-time.After(50 * time.Millisecond):
	}
	g.must(t, g.locked(func() error { return e.keepHooksLocked(hooks) }))
	d := <-dialed
	g.must(t, d.err)
	defer d.c.Close()
	if n := sentAgain(t, d.c); n != 0 {
		t.Errorf("the client sent its SYN %d times again", n)
	}
	g.must(t, echoWord(d.c, "afterwards"))
	if e.config.Holding != 0 {
		t.Error("refused packets are still held")
	}
	g.refused(t, "afterwards")
}

// sentAgain returns how many segments a connection has sent again.
func sentAgain(t *testing.T, c net.Conn) (n uint32) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			n = info.Total_retrans
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func mac(t *testing.T, n *nstest.Node) (address string) {
	t.Helper()
	if err := n.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			address = i.HardwareAddr.String()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return address
}

// TestHeldAreDecidedOnce: what the rules refuse while it is held is refused afterwards, and each
// packet is counted once, also if there is no space to hold it, it is too large, or it begins a
// connection. None of them passes.
func TestHeldAreDecidedOnce(t *testing.T) {
	t.Parallel()
	g := newUpgrade(t)
	hooks := g.follow(t)
	heard, err := g.server.ListenPacket("udp", "10.0.0.1:81")
	g.must(t, err)
	defer heard.Close()
	c, err := g.client.DialContext(t.Context(), "udp", "10.0.0.1:81")
	g.must(t, err)
	defer c.Close()
	send := func(n, size int) { g.send(t, c, n, size) }
	g.must(t, g.locked(func() error { return g.engine.switchHooksLocked(nil, hooks) }))
	before := g.denied(t)
	send(10, 100)
	if n := g.denied(t) - before; n != 0 {
		t.Errorf("%d packets are counted while they are held", n)
	}
	send(10, 1000)
	if n := g.denied(t) - before; n != 10 {
		t.Errorf("%d packets are counted, want the ten that are too large", n)
	}
	const many = 2000
	send(many, 50)
	if n := g.denied(t) - before; n <= 10 || n >= 20+many {
		t.Errorf("%d of %d packets found no space", n-10, many)
	}
	g.must(t, g.locked(func() error { return g.engine.keepHooksLocked(hooks) }))
	if n := g.denied(t) - before; n != 20+many {
		t.Errorf("%d packets are counted afterwards, want %d", n, 20+many)
	}
	g.must(t, heard.SetReadDeadline(time.Now()))
	if _, _, err := heard.ReadFrom(make([]byte, 1)); err == nil {
		t.Error("a packet passed")
	}
}

// TestHeldOfAKilledAgent: what was held when the agent was killed is not put to a hook later.
func TestHeldOfAKilledAgent(t *testing.T) {
	t.Parallel()
	g := newUpgrade(t)
	hooks := g.follow(t)
	c, err := g.client.DialContext(t.Context(), "udp", "10.0.0.1:81")
	g.must(t, err)
	defer c.Close()
	g.must(t, g.locked(func() error { return g.engine.switchHooksLocked(nil, hooks) }))
	before := g.denied(t)
	g.send(t, c, 5, 100)
	g.kill(t, hooks)
	g.open(t)
	g.interfaces(t)
	g.must(t, g.engine.Load(compile(t, webRules)))
	g.attach(t)
	if n := g.denied(t) - before; n != 0 {
		t.Errorf("%d old packets came to the hook", n)
	}
	g.send(t, c, 5, 100)
	if n := g.denied(t) - before; n != 5 {
		t.Errorf("%d packets are counted afterwards, want 5", n)
	}
}

func (g *pairLab) send(t *testing.T, c net.Conn, packets, size int) {
	t.Helper()
	for range packets {
		_, err := c.Write(make([]byte, size))
		g.must(t, err)
	}
}

// denied returns how many UDP packets that came in the rules have refused: what the kernel sends on
// its own is ICMPv6.
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
