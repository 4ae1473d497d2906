package kernel

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
)

// flooder sends SYNs from random sources out of an interface of its node.
type flooder struct {
	fd       int
	from, to net.HardwareAddr
	sent     atomic.Int64
	stop     chan struct{}
	done     sync.WaitGroup
}

func newFlooder(t *testing.T, from, to *nstest.Node) *flooder {
	t.Helper()
	f := &flooder{stop: make(chan struct{})}
	mac := func(n *nstest.Node) (a net.HardwareAddr, index int) {
		if err := n.Do(func() error {
			i, err := net.InterfaceByName("eth0")
			if err == nil {
				a, index = i.HardwareAddr, i.Index
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return a, index
	}
	var index int
	f.from, index = mac(from)
	f.to, _ = mac(to)
	if err := from.Do(func() (err error) {
		if f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); err != nil {
			return err
		}
		return unix.Bind(f.fd, &unix.SockaddrLinklayer{Ifindex: index})
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(f.fd) })
	return f
}

// frame is a SYN from a random address and port. Every other one is IPv6.
func (f *flooder) frame(n int) ([]byte, error) {
	syn := packet.TCP{SrcPort: uint16(1024 + rand.IntN(60000)), DstPort: 8080, Seq: rand.Uint32(), Flags: packet.FlagSYN, Window: 64240}
	var ip packet.Layer = packet.IPv4{Src: netip.AddrFrom4([4]byte{11, byte(rand.IntN(256)), byte(rand.IntN(256)), byte(1 + rand.IntN(250))}),
		Dst: netip.MustParseAddr("10.0.0.1")}
	kind := []byte{0x08, 0}
	if n%2 == 1 {
		src := netip.MustParseAddr("fd11::1").As16()
		for i := 2; i < 16; i++ {
			src[i] = byte(rand.IntN(256))
		}
		ip = packet.IPv6{Src: netip.AddrFrom16(src), Dst: netip.MustParseAddr("fd00::1")}
		kind = []byte{0x86, 0xdd}
	}
	b, err := packet.Build(ip, syn)
	if err != nil {
		return nil, err
	}
	frame := append(append(append([]byte(nil), f.to...), f.from...), kind...)
	return append(frame, b...), nil
}

// run floods until close.
func (f *flooder) run(t *testing.T) {
	f.done.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-f.stop:
				return
			default:
			}
			b, err := f.frame(n)
			if err == nil {
				_, err = unix.Write(f.fd, b)
			}
			if err != nil && err != unix.ENOBUFS {
				t.Error(err)
				return
			}
			f.sent.Add(1)
		}
	})
}

func (f *flooder) close() {
	close(f.stop)
	f.done.Wait()
}

// listenTCP listens without MPTCP, which the stack takes no cookies of ours for.
func listenTCP(t *testing.T, n *nstest.Node, address string) {
	t.Helper()
	var l net.Listener
	if err := n.Do(func() (err error) {
		var c net.ListenConfig
		c.SetMultipathTCP(false)
		l, err = c.Listen(context.Background(), "tcp", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go echo(l)
}

// echoes sends so much through a new connection, and wants it back.
func (g *guarded) echoes(to string, size int) error {
	c, err := dialFrom(g.client, to, 3*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	go io.CopyN(c, constant('x'), int64(size))
	n, err := io.CopyN(io.Discard, c, int64(size))
	if err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", n, size, err)
	}
	return nil
}

type constant byte

func (c constant) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(c)
	}
	return len(b), nil
}

// until waits for something to be true.
func until(t *testing.T, what string, most time.Duration, f func() bool) {
	t.Helper()
	for stop := time.Now().Add(most); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(stop) {
			t.Fatalf("not within %v: %s", most, what)
		}
	}
}

func (g *guarded) stats(t *testing.T) Stats {
	t.Helper()
	s, err := g.engine.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSYNCookies floods a service from random sources: cookies begin by themselves, the service goes on for everybody else, half-open states stay few,
// and the cookies end when the flood has.
func TestSYNCookies(t *testing.T) {
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxEmbryonic, o.MaxPerSource = 20000, 2000, 500
	o.Timeouts.Syn = 2 * time.Second
	g := newGuardedWith(t, webRules, o)
	listenTCP(t, g.server, "[::]:8080")
	if err := g.engine.Load(compile(t, "add check-state\nadd allow tcp from any to me 80,8080 setup keep-state\n")); err != nil {
		t.Fatal(err)
	}
	if s := g.stats(t); s.Cookies.Lack != "" {
		t.Skipf("no SYN cookies here: %s", s.Cookies.Lack)
	}
	to := []string{"10.0.0.1:8080", "[fd00::1]:8080"}
	for _, a := range to {
		if err := g.echoes(a, 3<<20); err != nil {
			t.Fatalf("before the flood: %s: %v", a, err)
		}
	}
	if s := g.stats(t); s.Cookies.Sent != 0 || s.Cookies.On {
		t.Fatalf("before the flood: %+v", s.Cookies)
	}
	f := newFlooder(t, g.client, g.server)
	f.run(t)
	until(t, "cookies are on", 5*time.Second, func() bool { return g.stats(t).Cookies.On })
	for n := range 40 {
		if err := g.echoes(to[n%2], 1<<20); err != nil {
			t.Errorf("in the flood: %s: %v", to[n%2], err)
		}
		if s := g.stats(t); s.Embryos > 2000/4+200 {
			t.Fatalf("%d half-open states", s.Embryos)
		}
	}
	f.close()
	s := g.stats(t)
	t.Logf("%d SYNs sent; %+v, %d half-open states", f.sent.Load(), s.Cookies, s.Embryos)
	if s.Cookies.Kept < 20 || s.Cookies.Sent < uint64(f.sent.Load()/4) {
		t.Errorf("cookies %+v", s.Cookies)
	}
	until(t, "cookies are off", 10*time.Second, func() bool { return !g.stats(t).Cookies.On })
	for _, a := range to {
		if err := g.echoes(a, 1<<20); err != nil {
			t.Errorf("after the flood: %s: %v", a, err)
		}
	}
	if after := g.stats(t); after.Cookies.Sent != s.Cookies.Sent {
		t.Errorf("cookies are off, and %d were sent", after.Cookies.Sent-s.Cookies.Sent)
	}
}
