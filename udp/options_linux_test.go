package udp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestPacketInfo: a reply with the received Local comes from the address that the client sent to,
// for all three families.
func TestPacketInfo(t *testing.T) {
	for _, c := range []struct {
		name, network, listen, dst string
	}{
		{"v4", "udp4", "0.0.0.0:0", "127.0.0.2"},
		{"v6", "udp6", "[::]:0", "::1"},
		{"dual", "udp", "[::]:0", "127.0.0.3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := listen(t, c.network, netip.MustParseAddrPort(c.listen),
				Config{PacketInfo: true, ECN: true, Timestamps: true})
			network := "udp4"
			dst := netip.MustParseAddr(c.dst)
			if dst.Is6() {
				network = "udp6"
			}
			client := listen(t, network, localhost(network), Config{PacketInfo: true, ECN: true})
			start := time.Now()
			out := Message{Buffers: [][]byte{{1}},
				Addr: netip.AddrPortFrom(dst, server.LocalAddrPort().Port()), ECN: ECT1}
			if _, err := client.WriteBatch([]Message{out}); err != nil {
				t.Fatal(err)
			}
			in := []Message{{Buffers: [][]byte{make([]byte, 10)}}}
			if _, err := server.ReadBatch(in); err != nil {
				t.Fatal(err)
			}
			m := in[0]
			if m.Local != dst || m.IfIndex == 0 || m.ECN != ECT1 ||
				m.Time.Before(start.Add(-time.Second)) ||
				m.Time.After(time.Now().Add(time.Second)) {
				t.Fatalf("server got %+v", m)
			}
			m.Buffers = [][]byte{{2}}
			m.ECN = CE
			if _, err := server.WriteBatch([]Message{m, m}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := client.ReadBatch(in); err != nil {
					t.Fatal(err)
				}
				if in[0].Addr.Addr() != dst || in[0].ECN != CE {
					t.Fatalf("client got %+v, want it from %s", in[0], dst)
				}
			}
		})
	}
}

// TestGoneSource: a source address that this host does not have fails the message, and does not
// disable GSO for the route.
func TestGoneSource(t *testing.T) {
	for network, gone := range map[string]string{"udp4": "203.0.113.7", "udp6": "2001:db8::7"} {
		c, to := listen(t, network, netip.AddrPort{}, Config{}),
			listen(t, network, localhost(network), Config{})
		m := Message{Buffers: [][]byte{make([]byte, 1000)}, Addr: to.LocalAddrPort(),
			Local: netip.MustParseAddr(gone)}
		if n, err := c.WriteBatch([]Message{m, m, m}); n != 0 || !errors.Is(err, unix.EINVAL) &&
			!errors.Is(err, unix.ENETUNREACH) {
			t.Fatalf("wrote %d: %v", n, err)
		}
		if got := c.sys.routes.max(to.LocalAddrPort().Addr()); got != MaxPayload {
			t.Errorf("the segments of GSO packets are limited to %d", got)
		}
	}
}

// refused returns an address whose port refuses datagrams during the test: the socket that holds
// the port is connected to another one, so nothing else can bind it.
func refused(t *testing.T, family string) netip.AddrPort {
	t.Helper()
	taken := localhost(family)
	c, err := net.DialUDP(family, net.UDPAddrFromAddrPort(taken),
		net.UDPAddrFromAddrPort(netip.AddrPortFrom(taken.Addr(), 9)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestErrors(t *testing.T) {
	for _, network := range []string{"udp4", "udp6", "udp"} {
		t.Run(network, func(t *testing.T) {
			local := netip.AddrPort{}
			family := "udp4"
			if network == "udp6" {
				local, family = localhost("udp6"), "udp6"
			} else if network == "udp4" {
				local = localhost("udp4")
			}
			c := listen(t, network, local, Config{Errors: true})
			to := refused(t, family)
			got := make(chan error)
			go func() { // a reader that waits already
				_, err := c.ReadBatch([]Message{{Buffers: [][]byte{make([]byte, 10)}}})
				got <- err
			}()
			time.Sleep(20 * time.Millisecond)
			if n, err := c.WriteBatch([]Message{{Buffers: [][]byte{{1}}, Addr: to}}); n != 1 ||
				err != nil {
				t.Fatal(n, err)
			}
			if err := <-got; !errors.Is(err, ErrQueued) {
				t.Fatalf("read gave %v, want ErrQueued", err)
			}
			list := make([]ICMPError, 4)
			n, err := c.ReadErrors(list)
			if n != 1 || err != nil {
				t.Fatalf("%d errors: %v", n, err)
			}
			e := &list[0]
			if e.Addr != to || e.From != to.Addr() || !errors.Is(e, syscall.ECONNREFUSED) {
				t.Errorf("got %v: %+v", e, e)
			}
			// Errors of earlier datagrams must not fail later ones.
			alive := listen(t, family, localhost(family), Config{})
			for range 20 {
				for _, a := range []netip.AddrPort{to, alive.LocalAddrPort()} {
					if _, err := c.WriteBatch([]Message{{Buffers: [][]byte{{1}},
						Addr: a}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := receive(t, alive, 20); len(got) != 20 {
				t.Errorf("%d datagrams came", len(got))
			}
			for range 200 {
				if _, err := c.WriteBatch([]Message{{Buffers: [][]byte{{1}},
					Addr: to}}); err != nil {
					t.Fatal(err)
				}
			}
			const refusals = 1 + 20 + 200
			for c.Stats().ErrorsQueued < refusals { // on a busy machine they come a little later
				_, err := c.ReadBatch([]Message{{Buffers: [][]byte{make([]byte, 10)}}})
				if !errors.Is(err, ErrQueued) {
					t.Fatalf("counters %+v: read gave %v, want ErrQueued", c.Stats(), err)
				}
			}
			for total := 0; ; total += n {
				if n, err = c.ReadErrors(list); err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					if total == 0 || total > 2*errorLimit {
						t.Errorf("%d errors read, counters %+v", total, c.Stats())
					}
					break
				}
			}
		})
	}
}

func TestDropsAreCounted(t *testing.T) {
	c := listen(t, "udp4", localhost("udp4"), Config{ReadBuffer: 4096, PacketInfo: true})
	from := listen(t, "udp4", localhost("udp4"), Config{NoGSO: true})
	msgs := make([]Message, 100)
	for i := range msgs {
		msgs[i] = Message{Buffers: [][]byte{make([]byte, 1000)}, Addr: c.LocalAddrPort()}
	}
	if _, err := from.WriteBatch(msgs); err != nil {
		t.Fatal(err)
	}
	// On a busy machine datagrams come a little later: nothing is read before some are dropped.
	for end := time.Now().Add(5 * time.Minute); kernelDrops(t, c) == 0; {
		if time.Now().After(end) {
			t.Fatal("the kernel drops nothing")
		}
		time.Sleep(time.Millisecond)
	}
	in := make([]Message, 100)
	for i := range in {
		in[i].Buffers = [][]byte{make([]byte, 1000)}
	}
	// The counter comes with the next datagram that is queued, which may be dropped itself.
	for sent, came := len(msgs), 0; ; sent++ {
		n, err := c.ReadBatch(in)
		if err != nil {
			t.Fatalf("%d of %d came, %d drops are counted: %v", came, sent, c.Stats().Dropped, err)
		}
		if came += n; came+int(c.Stats().Dropped) == sent {
			break
		}
		if _, err := from.WriteBatch(msgs[:1]); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := c.Stats().Dropped, kernelDrops(t, c); got != want {
		t.Errorf("%d drops counted, the kernel has %d", got, want)
	}
}

// kernelDrops is how many datagrams the kernel has dropped at a socket.
func kernelDrops(t *testing.T, c *Conn) (n uint64) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info [9]uint32 // SK_MEMINFO_VARS, of which the last is SK_MEMINFO_DROPS
	size := uint32(unsafe.Sizeof(info))
	var errno unix.Errno
	if err := raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	}); err != nil || errno != 0 {
		t.Fatal(err, errno)
	}
	return uint64(info[8])
}

func TestBuffersAndFeatures(t *testing.T) {
	c := listen(t, "udp4", localhost("udp4"),
		Config{ReadBuffer: 100_000, WriteBuffer: 120_000, DontFragment: true})
	if r, w, err := c.Buffers(); r != 100_000 || w != 120_000 || err != nil {
		t.Errorf("buffers are %d and %d: %v", r, w, err)
	}
	if f := c.Features(); !f.GSO || f.GRO {
		t.Errorf("the default is %+v, want GSO without GRO", f)
	}
	if f := listen(t, "udp4", localhost("udp4"), Config{NoGSO: true}).Features(); f.GSO {
		t.Errorf("with NoGSO: %+v", f)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	called := 0
	if err := raw.Write(func(fd uintptr) bool {
		called++
		return called == 2
	}); err != nil || called != 2 {
		t.Errorf("waiting until the socket is writable: %d calls, %v", called, err)
	}
}

// TestForcedBuffers: a process with CAP_NET_ADMIN gets buffers beyond the system's limit. A process
// without it gets the limit.
func TestForcedBuffers(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	if err != nil {
		t.Fatal(err)
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	want := limit + 1<<20
	c := listen(t, "udp4", localhost("udp4"), Config{ReadBuffer: want})
	if os.Getuid() != 0 {
		want = limit
	}
	if r, _, err := c.Buffers(); r != want || err != nil {
		t.Errorf("a buffer of %d where %d is the limit: %v", r, limit, err)
	}
}

// TestDontFragment: with the DF bit a datagram larger than the MTU fails, without it the datagram
// arrives in fragments.
func TestDontFragment(t *testing.T) {
	ownNamespace(t, "1500")
	for _, network := range []string{"udp4", "udp6"} {
		for _, bit := range []bool{true, false} {
			from, to := listen(t, network, localhost(network), Config{DontFragment: bit}),
				listen(t, network, localhost(network), Config{})
			n, err := from.WriteBatch([]Message{{Buffers: [][]byte{make([]byte, 3000)},
				Addr: to.LocalAddrPort()}})
			if bit {
				if n != 0 || !errors.Is(err, unix.EMSGSIZE) {
					t.Errorf("%s: wrote %d with the bit set: %v", network, n, err)
				}
				continue
			}
			if n != 1 || err != nil || receive(t, to, 1)[0].N != 3000 {
				t.Errorf("%s: wrote %d: %v", network, n, err)
			}
		}
	}
}

// TestRouteWithoutGSO simulates a route whose device returns EIO for GSO packets: their datagrams
// are sent one by one, those to other destinations as before.
func TestRouteWithoutGSO(t *testing.T) {
	c, to, other := listen(t, "udp4", netip.AddrPort{}, Config{}),
		listen(t, "udp4", localhost("udp4"), Config{}),
		listen(t, "udp4", netip.MustParseAddrPort("127.0.0.2:0"), Config{})
	batch := func(to *Conn) (msgs []Message) {
		for range 3 {
			msgs = append(msgs, Message{Buffers: [][]byte{make([]byte, 1000)},
				Addr: to.LocalAddrPort()})
		}
		return msgs
	}
	msgs, r := batch(to), c.sys.writers.get(c)
	r.grow(len(msgs))
	if !r.layOutWrite(msgs, cursor{}) || r.count != 1 || r.segmentOf(0) != 1000 {
		t.Fatalf("%d headers, segments of %d", r.count, r.segmentOf(0))
	}
	if r.errno = unix.EIO; !r.retry(&msgs[0], 0) {
		t.Fatal("EIO for a GSO packet is an error")
	}
	if !r.layOutWrite(msgs, cursor{}) || r.count != 3 || r.segmentOf(0) != 0 {
		t.Errorf("after EIO %d headers, segments of %d", r.count, r.segmentOf(0))
	}
	if r.errno = unix.EIO; r.retry(&msgs[0], 1) {
		t.Error("EIO for a single datagram is tried again")
	}
	r.release()
	c.sys.routes.refuse(to.LocalAddrPort().Addr(), 1000, true)
	for dst, want := range map[*Conn]uint64{to: 0, other: 1} {
		before := c.Stats().WriteGSO
		if n, err := c.WriteBatch(batch(dst)); n != 3 || err != nil {
			t.Fatalf("wrote %d: %v", n, err)
		}
		if got := c.Stats().WriteGSO - before; got != want || len(receive(t, dst, 3)) != 3 {
			t.Errorf("%d GSO packets to %s, want %d", got, dst.LocalAddrPort(), want)
		}
	}
}

// ownNamespace moves the test to a network namespace of its own, whose loopback has the given MTU.
// It needs root.
func ownNamespace(t *testing.T, mtu string) {
	t.Helper()
	if os.Getuid() != 0 {
		if os.Getenv("WEIR_CI") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("SKIPPED: needs root to make a network namespace")
	}
	// never unlocked: the thread ends with the test, and the namespace with it
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "mtu", mtu,
		"up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestRefusedGSO: segments larger than the MTU cannot leave as a GSO packet. They must arrive
// nevertheless, once each and in order, and smaller ones must leave as GSO packets as before.
func TestRefusedGSO(t *testing.T) {
	ownNamespace(t, "1500")
	for _, network := range []string{"udp4", "udp6"} {
		from, to := listen(t, network, localhost(network), Config{}),
			listen(t, network, localhost(network), Config{})
		batch := func(sizes ...int) {
			t.Helper()
			var msgs []Message
			for i, n := range sizes {
				msgs = append(msgs, Message{Buffers: [][]byte{append([]byte{byte(i)},
					make([]byte, n-1)...)}, Addr: to.LocalAddrPort()})
			}
			if n, err := from.WriteBatch(msgs); n != len(msgs) || err != nil {
				t.Fatalf("wrote %d: %v", n, err)
			}
			for i, m := range receive(t, to, len(msgs)) {
				if m.Buffers[0][0] != byte(i) || m.N != sizes[i] {
					t.Fatalf("datagram %d is %d, %d bytes", i, m.Buffers[0][0], m.N)
				}
			}
		}
		batch(1400, 1400, 1400)
		before := from.Stats()
		if before.WriteGSO != 1 || before.GSORefused != 0 {
			t.Fatalf("%s: before: %+v", network, before)
		}
		batch(1400, 1400, 2000, 2000, 2000, 1000, 1400, 1400)
		if s := from.Stats(); s.GSORefused != 1 {
			t.Fatalf("%s: refused %d times, want once", network, s.GSORefused)
		}
		batch(2000, 2000, 2000)
		batch(1400, 1400)
		s := from.Stats()
		if s.GSORefused != 1 || s.WriteGSO < 4 {
			t.Fatalf("%s: after: %+v", network, s)
		}
	}
}

// TestReadWaits has a reader that sleeps before every datagram: no wake-up may be lost.
func TestReadWaits(t *testing.T) {
	a, b := listen(t, "udp4", localhost("udp4"), Config{}),
		listen(t, "udp4", localhost("udp4"), Config{})
	go func() {
		m := []Message{{Buffers: [][]byte{make([]byte, 10)}}}
		for {
			if _, err := b.ReadBatch(m); err != nil {
				return
			}
			m[0].Buffers[0] = m[0].Buffers[0][:m[0].N]
			if _, err := b.WriteBatch(m); err != nil {
				return
			}
			m[0].Buffers[0] = m[0].Buffers[0][:10]
		}
	}()
	m := []Message{{Buffers: [][]byte{make([]byte, 10)}}}
	for i := range 20000 {
		m[0].Addr = b.LocalAddrPort()
		if _, err := a.WriteBatch(m); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 { // a deadline that passes while armed
			a.SetReadDeadline(time.Now().Add(time.Microsecond))
			_, err := a.ReadBatch(m)
			a.SetReadDeadline(time.Now().Add(5 * time.Minute))
			if err == nil {
				continue
			}
		}
		if _, err := a.ReadBatch(m); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
}
