package overlay

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

// slowLab is a node with two peers, one behind a slow link, whose queue is long and slows down when
// slow is called.
//
//	slow: weir0 10.99.0.2 -- wire 10.98.0.2/24 -- 10.98.0.1/24 slow --\
//	fast: weir0 10.99.0.3 -- wire 10.97.0.3/24 -- 10.97.0.1/24 fast -- a: weir0 10.99.0.1
func slowLab(t *testing.T) (a, slow, fast *side, slowDown func()) {
	t.Helper()
	lab := nstest.New(t)
	a = &side{Node: lab.Node("a"), addr: "10.99.0.1"}
	slow = &side{Node: lab.Node("b"), addr: "10.99.0.2"}
	fast = &side{Node: lab.Node("c"), addr: "10.99.0.3"}
	lab.Join(a.Node, "slow", "10.98.0.1/24", slow.Node, "wire", "10.98.0.2/24")
	lab.Join(a.Node, "fast", "10.97.0.1/24", fast.Node, "wire", "10.97.0.3/24")
	for _, s := range []*side{a, slow, fast} {
		s.start(t, nil)
	}
	a.peer(t, slow, nil, "10.98.0.2:51820")
	a.peer(t, fast, nil, "10.97.0.3:51820")
	slow.peer(t, a, nil, "10.98.0.1:51820")
	fast.peer(t, a, nil, "10.97.0.1:51820")
	return a, slow, fast, func() {
		a.Run("tc", "qdisc", "add", "dev", "slow", "root", "tbf", "rate", "1mbit",
			"burst", "4kb", "limit", "40mb")
	}
}

// TestSlowPeer: far more goes to a peer than its link carries, whose queue is long. That does
// not delay the others.
func TestSlowPeer(t *testing.T) {
	a, slow, fast, slowDown := slowLab(t)
	echo(t, a, slow, 100)
	echo(t, a, fast, 100)
	slowDown()
	c, err := a.DialContext(t.Context(), "udp", slow.addr+":4000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	end := make(chan struct{})
	defer close(end)
	go func() { // 48 Mbit/s
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			for range 5 {
				c.(*net.UDPConn).Write(make([]byte, 1200))
			}
		}
	}()
	full := func() uint64 { return a.dev.Stats().SendFull }
	nstest.Eventually(t, "the slow link is full", func() bool { return full() > 0 })
	// What has to wait for the slow link waits minutes, with all that is behind it.
	begin := time.Now()
	for range 10 {
		echo(t, a, fast, 100, 1000)
	}
	download(t, a, fast, 4<<20, nil)
	t.Logf("the other peer took %v", time.Since(begin))
	after := full()
	nstest.Eventually(t, "the slow link is still full", func() bool { return full() > after })
}

// TestSlowStrangers: neither cookies nor answers to probes take space in the socket by which
// handshakes leave, nor wait for space. Otherwise a host that asks for them from behind a slow link
// would hold up the handshakes of all peers, and the goroutine that receives.
func TestSlowStrangers(t *testing.T) {
	a, slow, fast, slowDown := slowLab(t)
	echo(t, a, slow, 100)
	slowDown()
	b := a.dev.bind
	p := b.peerOf(slow.key.Public())
	from := &remoteEndpoint{path: *p.current.Load(), bind: b}
	from.owner.Store(p)
	cookie := make([]byte, 64)
	probe := slow.dev.bind.peerOf(a.key.Public()).message(typeProbe, MinMTU)
	ask := func() {
		if err := b.Send([][]byte{cookie}, from, 0); err != nil {
			t.Fatal(err)
		}
		b.handleProbe(probe, from)
	}
	for range 500 { // the queue of the link keeps most of them
		ask()
	}
	raw, err := b.v4.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	waits := 0
	raw.Control(func(fd uintptr) { waits, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	if waits > 16<<10 || err != nil { // a handshake may wait there
		t.Fatalf("%d bytes wait in the socket of handshakes: %v", waits, err)
	}
	for a.dev.Stats().SendFull == 0 {
		ask()
	}
	echo(t, a, fast, 100) // there was no handshake yet
}

// TestStrangersKeepNoPeerOut: strangers behind a slow link have filled the socket of cookies. The
// cookies for a peer get out.
func TestStrangersKeepNoPeerOut(t *testing.T) {
	const asked, cookie = 200, 64
	a, slow, fast, slowDown := slowLab(t)
	echo(t, a, slow, 100)
	echo(t, a, fast, 100)
	at, err := fast.ListenPacket("udp", "10.97.0.3:7000")
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	slowDown()
	b := a.dev.bind
	address := netip.MustParseAddrPort("10.97.0.3:7000")
	b.peerOf(fast.key.Public()).setCandidates([]netip.AddrPort{address})
	send := func(to netip.AddrPort) {
		t.Helper()
		err := b.Send([][]byte{make([]byte, cookie)}, b.remotes.get(b, path{addr: to}), 0)
		if err != nil {
			t.Fatal(err)
		}
	}
	for filled := a.dev.Stats().SendFull; a.dev.Stats().SendFull < filled+1000; {
		send(netip.MustParseAddrPort("10.98.0.2:9"))
	}
	before := a.dev.Stats().SendFull
	for range asked {
		send(address)
	}
	if full := a.dev.Stats().SendFull - before; full > 0 {
		t.Errorf("%d of %d cookies are counted as dropped", full, asked)
	}
	at.SetReadDeadline(time.Now().Add(testTimeout))
	buf := make([]byte, 2000)
	for got := 0; got < asked; {
		n, _, err := at.ReadFrom(buf)
		if err != nil {
			t.Fatalf("%d of %d cookies get out: %v", got, asked, err)
		}
		if n == cookie {
			got++
		}
	}
}
