package udp

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/testrand"
)

func localhost(network string) netip.AddrPort {
	if network == "udp6" {
		return netip.MustParseAddrPort("[::1]:0")
	}
	return netip.MustParseAddrPort("127.0.0.1:0")
}

// listen opens a socket that is closed with the test. IPv6 may be missing on the machine.
func listen(t testing.TB, network string, local netip.AddrPort, config Config) *Conn {
	t.Helper()
	if config.ReadBuffer == 0 {
		config.ReadBuffer = 8 << 20
	}
	c, err := Listen(network, local, config)
	if err != nil {
		if network == "udp6" {
			t.Skipf("no IPv6 here: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// receive reads until n datagrams have come, and returns copies of them.
func receive(t testing.TB, c *Conn, n int) (got []Message) {
	t.Helper()
	r := c.NewReader(8)
	for len(got) < n {
		msgs, err := r.ReadBatch()
		if err != nil {
			t.Fatalf("after %d of %d datagrams: %v", len(got), n, err)
		}
		for _, m := range msgs {
			m.Buffers = [][]byte{bytes.Clone(m.Payload())}
			got = append(got, m)
		}
	}
	return got
}

// randomBatch makes messages for one of the addresses, often in runs of equal size, as one and as
// several buffers. It also returns the datagrams that must come out for each address.
func randomBatch(r *rand.Rand, to []netip.AddrPort, n int) ([]Message,
	map[netip.AddrPort][][]byte) {
	want := map[netip.AddrPort][][]byte{}
	var msgs []Message
	for len(msgs) < n {
		addr, size := to[r.IntN(len(to))], 1+r.IntN(1500)
		for range 1 + r.IntN(8) {
			if r.IntN(10) == 0 {
				size = r.IntN(1500) // 0 is a datagram too
			}
			m := Message{Addr: addr}
			whole := make([]byte, size)
			for i := range whole {
				whole[i] = byte(r.Uint32())
			}
			if r.IntN(6) == 0 {
				m.Segment = 1 + r.IntN(700)
			}
			for rest := whole; ; {
				k := len(rest)
				if r.IntN(2) == 0 {
					k = r.IntN(k + 1)
				}
				m.Buffers = append(m.Buffers, rest[:k])
				if rest = rest[k:]; len(rest) == 0 {
					break
				}
			}
			for rest := whole; ; {
				k := len(rest)
				if m.Segment > 0 {
					k = min(k, m.Segment)
				}
				want[addr] = append(want[addr], rest[:k])
				if rest = rest[k:]; len(rest) == 0 {
					break
				}
			}
			msgs = append(msgs, m)
		}
	}
	return msgs, want
}

// TestDeliver compares what is received with what was sent, for random batches and every mechanism
// of the kernel, and for the portable implementation.
func TestDeliver(t *testing.T) {
	seed := testrand.Seed(t)
	for _, network := range []string{"udp4", "udp6"} {
		for _, path := range []struct {
			name             string
			noGSO, gro       bool
			portable, mapped bool
		}{
			{name: "portable", noGSO: true, portable: true},
			{name: "batch", noGSO: true},
			{name: "gso"},
			{name: "gro", noGSO: true, gro: true},
			{name: "gso+gro", gro: true},
			{name: "dual", gro: true, mapped: true},
		} {
			t.Run(network+"/"+path.name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1))
				config := Config{NoGSO: path.noGSO, GRO: path.gro}
				var from *Conn
				var one portable
				if path.portable {
					pc, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(localhost(network)))
					if err != nil {
						t.Skipf("no %s here: %v", network, err)
					}
					defer pc.Close()
					one = portable{pc: pc, stats: &counters{}}
					from = &Conn{local: addrPortOf(pc.LocalAddr())}
				} else if path.mapped {
					from = listen(t, "udp", netip.AddrPort{}, config)
				} else {
					from = listen(t, network, localhost(network), config)
				}
				a, b := listen(t, network, localhost(network), config),
					listen(t, network, localhost(network), config)
				for range 20 {
					msgs, want := randomBatch(r,
						[]netip.AddrPort{a.LocalAddrPort(), b.LocalAddrPort()}, 100)
					write := from.WriteBatch
					if path.portable {
						write = one.write
					}
					if n, err := write(msgs); err != nil || n != len(msgs) {
						t.Fatalf("wrote %d of %d: %v", n, len(msgs), err)
					}
					for i := range msgs {
						if msgs[i].N != msgs[i].size() {
							t.Fatalf("message %d: N is %d, its size %d", i, msgs[i].N,
								msgs[i].size())
						}
					}
					for _, c := range []*Conn{a, b} {
						compare(t, receive(t, c, len(want[c.LocalAddrPort()])),
							want[c.LocalAddrPort()], from.LocalAddrPort().Port())
					}
				}
				f := from.Features()
				if s := from.Stats(); f.GSO && s.WriteGSO == 0 {
					t.Errorf("no GSO packet was sent: %+v", s)
				}
				if s := a.Stats(); f.GSO && f.GRO && s.ReadGRO == 0 {
					t.Errorf("no GRO packet was received: %+v", s)
				}
				if s := a.Stats(); s.Truncated+s.ControlTruncated+s.Dropped != 0 {
					t.Errorf("losses: %+v", s)
				}
			})
		}
	}
}

func compare(t *testing.T, got []Message, want [][]byte, port uint16) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d datagrams, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i].Buffers[0], want[i]) {
			t.Fatalf("datagram %d has %d bytes, want %d, or they differ", i, len(got[i].Buffers[0]),
				len(want[i]))
		}
		if got[i].Addr.Port() != port || got[i].Addr.Addr().Is4In6() {
			t.Fatalf("datagram %d came from %s, want port %d", i, got[i].Addr, port)
		}
	}
}

func TestReadBatchManyBuffers(t *testing.T) {
	a, b := listen(t, "udp4", localhost("udp4"), Config{}),
		listen(t, "udp4", localhost("udp4"), Config{})
	payload := []byte("0123456789")
	out := []Message{{Buffers: [][]byte{payload}, Addr: b.LocalAddrPort()},
		{Buffers: [][]byte{payload}, Addr: b.LocalAddrPort()}}
	if _, err := a.WriteBatch(out); err != nil {
		t.Fatal(err)
	}
	in := []Message{
		{Buffers: [][]byte{make([]byte, 3), {}, make([]byte, 20)}},
		{Buffers: [][]byte{make([]byte, 4), make([]byte, 2)}},
	}
	for n := 0; n < 2; {
		k, err := b.ReadBatch(in[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	if in[0].N != 10 || string(in[0].Buffers[0]) != "012" ||
		string(in[0].Buffers[2][:7]) != "3456789" || in[0].Truncated {
		t.Errorf("scattered message is %+v", in[0])
	}
	if in[1].N != 6 || string(in[1].Buffers[1]) != "45" || !in[1].Truncated {
		t.Errorf("short message is %+v", in[1])
	}
	if s := b.Stats(); s.Truncated != 1 || s.ReadPackets != 2 {
		t.Errorf("counters are %+v", s)
	}
}

func TestShortBufferWithGRO(t *testing.T) {
	c := listen(t, "udp4", localhost("udp4"), Config{GRO: true})
	if !c.Features().GRO {
		t.Skip("no UDP_GRO here")
	}
	if _, err := c.ReadBatch([]Message{{Buffers: [][]byte{make([]byte, 1500)}}}); !errors.Is(err,
		ErrShortBuffer) {
		t.Errorf("got %v, want ErrShortBuffer", err)
	}
}

func TestWriteToWrongFamily(t *testing.T) {
	c, sink := listen(t, "udp4", localhost("udp4"), Config{}),
		listen(t, "udp4", localhost("udp4"), Config{})
	msgs := []Message{
		{Buffers: [][]byte{{1}}, Addr: sink.LocalAddrPort()},
		{Buffers: [][]byte{{2}}, Addr: netip.MustParseAddrPort("[::1]:9")},
		{Buffers: [][]byte{{3}}, Addr: sink.LocalAddrPort()},
	}
	if n, err := c.WriteBatch(msgs); n != 1 || !errors.Is(err, ErrFamily) {
		t.Fatalf("wrote %d: %v, want 1 and ErrFamily", n, err)
	}
	if n, err := c.WriteBatch(msgs[2:]); n != 1 || err != nil {
		t.Fatalf("behind the bad one: %d, %v", n, err)
	}
	if n, err := c.WriteBatch([]Message{{}}); n != 0 || !errors.Is(err, ErrFamily) {
		t.Fatalf("without address: %d, %v", n, err)
	}
}

func TestDeadlineAndClose(t *testing.T) {
	c := listen(t, "udp4", localhost("udp4"), Config{})
	msgs := []Message{{Buffers: [][]byte{make([]byte, 10)}}}
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadBatch(msgs); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want a deadline error", err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := c.ReadBatch(msgs)
		done <- err
	}()
	time.Sleep(10 * time.Millisecond)
	c.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read that waits got %v, want net.ErrClosed", err)
	}
	if _, err := c.WriteBatch([]Message{{Addr: c.LocalAddrPort()}}); !errors.Is(err,
		net.ErrClosed) {
		t.Errorf("write got %v, want net.ErrClosed", err)
	}
}

func TestDial(t *testing.T) {
	server := listen(t, "udp4", localhost("udp4"), Config{})
	c, err := Dial("udp4", server.LocalAddrPort(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	payload := make([]byte, 100)
	if n, err := c.WriteBatch([]Message{{Buffers: [][]byte{payload}}, {Buffers: [][]byte{payload}},
		{Buffers: [][]byte{payload[:7]}}}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	got := receive(t, server, 3)
	if len(got[1].Buffers[0]) != 100 || len(got[2].Buffers[0]) != 7 ||
		got[0].Addr != c.LocalAddrPort() {
		t.Errorf("got %+v", got)
	}
}

// TestManyReadersAndWriters has four of each on two sockets; every datagram must arrive once.
func TestManyReadersAndWriters(t *testing.T) {
	const writers, each = 4, 2000
	from := listen(t, "udp4", localhost("udp4"), Config{})
	to := listen(t, "udp4", localhost("udp4"), Config{GRO: true})
	window := make(chan struct{}, 512) // bounds the datagrams in flight, so that nothing is dropped
	var seen [writers][each]int
	var mu sync.Mutex
	var wg, readers sync.WaitGroup
	total := 0
	for range 4 {
		readers.Go(func() {
			r := to.NewReader(4)
			for {
				msgs, err := r.ReadBatch()
				if err != nil {
					return
				}
				mu.Lock()
				for _, m := range msgs {
					b := m.Payload()
					seen[b[0]][int(b[1])<<8|int(b[2])]++
					total++
				}
				all := total == writers*each
				mu.Unlock()
				for range msgs {
					<-window
				}
				if all {
					to.SetReadDeadline(time.Now())
				}
			}
		})
	}
	for w := range writers {
		wg.Go(func() {
			for i := 0; i < each; i += 10 {
				var msgs []Message
				for k := i; k < i+10; k++ {
					window <- struct{}{}
					msgs = append(msgs, Message{Buffers: [][]byte{{byte(w), byte(k >> 8), byte(k)}},
						Addr: to.LocalAddrPort()})
				}
				if n, err := from.WriteBatch(msgs); n != 10 || err != nil {
					t.Errorf("wrote %d: %v", n, err)
				}
			}
		})
	}
	wg.Wait()
	readers.Wait()
	for w := range seen {
		for i, n := range seen[w] {
			if n != 1 {
				t.Fatalf("datagram %d of writer %d came %d times; counters %+v", i, w, n,
					to.Stats())
			}
		}
	}
}

func TestListenGroup(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("Linux only")
	}
	for _, local := range []netip.AddrPort{localhost("udp4"), {}} {
		group, err := ListenGroup("udp4", local, 4, Config{})
		if err != nil {
			t.Fatal(err)
		}
		port := group[0].LocalAddrPort().Port()
		for _, c := range group {
			if c.LocalAddrPort().Port() != port {
				t.Errorf("port %d in a group of port %d", c.LocalAddrPort().Port(), port)
			}
		}
		to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
		const flows = 64 // the chance that one socket of four gets none is 4e-8
		for range flows {
			c := listen(t, "udp4", localhost("udp4"), Config{})
			if _, err := c.WriteBatch([]Message{{Buffers: [][]byte{{1}}, Addr: to}}); err != nil {
				t.Fatal(err)
			}
		}
		receiveByAll(t, group, flows)
	}
}

// receiveByAll waits until a group has received so many datagrams, of which each socket gets some.
func receiveByAll(t *testing.T, group []*Conn, want int) {
	t.Helper()
	var total atomic.Int64
	var all sync.WaitGroup
	got := make([]int, len(group))
	for _, c := range group {
		c.SetReadDeadline(time.Now().Add(5 * time.Minute))
	}
	for i, c := range group {
		all.Go(func() {
			b := make([]byte, 1)
			for {
				if _, err := c.ReadBatch([]Message{{Buffers: [][]byte{b}}}); err != nil {
					return
				}
				if got[i]++; total.Add(1) == int64(want) {
					for _, c := range group {
						c.SetReadDeadline(time.Now())
					}
				}
			}
		})
	}
	all.Wait()
	for i, c := range group {
		if got[i] == 0 {
			t.Errorf("socket %d of the group got nothing", i)
		}
		c.Close()
	}
	if n := total.Load(); n != int64(want) {
		t.Errorf("the group got %d datagrams, want %d", n, want)
	}
}
