package xnet

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/weirnet/weir/udp"
)

// batcher is what both packages of x/net and this one have in common.
type batcher interface {
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
	WriteBatch(ms []ipv4.Message, flags int) (int, error)
}

var (
	_ batcher = (*Conn)(nil)
	_ batcher = (*ipv4.PacketConn)(nil)
	_ batcher = (*ipv6.PacketConn)(nil)
)

// sockets returns a socket of package udp and one of package net, with deadlines in ten seconds.
func sockets(t *testing.T) (*udp.Conn, *net.UDPConn) {
	t.Helper()
	u, err := udp.Listen("udp4", netip.MustParseAddrPort("127.0.0.1:0"), udp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	u.SetDeadline(time.Now().Add(5 * time.Minute))
	pc.SetDeadline(time.Now().Add(5 * time.Minute))
	return u, pc
}

// TestAgainstXNet sends between this package and x/net, both ways.
func TestAgainstXNet(t *testing.T) {
	u, pc := sockets(t)
	ours, theirs := batcher(New(u)), batcher(ipv4.NewPacketConn(pc))
	here, there := net.UDPAddrFromAddrPort(u.LocalAddrPort()), pc.LocalAddr()

	exchange := func(from, to batcher, fromAddr, toAddr net.Addr) {
		t.Helper()
		out, in := make([]ipv4.Message, 20), make([]ipv4.Message, 20)
		for i := range out {
			out[i] = ipv4.Message{Buffers: [][]byte{{byte(i)}, make([]byte, i)}, Addr: toAddr}
			in[i] = ipv4.Message{Buffers: [][]byte{make([]byte, 100)}}
		}
		for n := 0; n < len(out); {
			k, err := from.WriteBatch(out[n:], 0)
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
		for n := 0; n < len(in); {
			k, err := to.ReadBatch(in[n:], 0)
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
		for i := range in {
			if in[i].N != i+1 || in[i].Buffers[0][0] != byte(i) ||
				in[i].Addr.String() != fromAddr.String() || out[i].N != i+1 {
				t.Errorf("message %d: %+v, want %d bytes from %s", i, in[i], i+1, fromAddr)
			}
		}
	}
	exchange(ours, theirs, here, there)
	exchange(theirs, ours, there, here)
	exchange(ours, ours, here, here)

	if n, err := ours.WriteBatch([]ipv4.Message{{Addr: there, Buffers: [][]byte{{1}}},
		{Addr: there, OOB: []byte{1}}}, 0); n != 1 || !errors.Is(err, ErrOOB) {
		t.Errorf("with control data: %d, %v", n, err)
	}
	if _, err := ours.ReadBatch(make([]ipv4.Message, 1), 1); !errors.Is(err,
		errors.ErrUnsupported) {
		t.Errorf("with flags: %v", err)
	}
}

// TestNumberWithErrors: with an error the number is that of the messages before it.
func TestNumberWithErrors(t *testing.T) {
	u, pc := sockets(t)
	c := New(u)
	out := func(sizes ...int) (ms []ipv4.Message) {
		for _, size := range sizes {
			ms = append(ms, ipv4.Message{Addr: pc.LocalAddr(),
				Buffers: [][]byte{make([]byte, size)}})
		}
		return ms
	}
	for want, sizes := range [][]int{{70000}, {1, 70000}, {1, 1, 70000, 1}} {
		if n, err := c.WriteBatch(out(sizes...), 0); n != want || err == nil {
			t.Errorf("sizes %v: %d, %v", sizes, n, err)
		}
	}
	u.SetDeadline(time.Now().Add(10 * time.Millisecond))
	for _, what := range []string{"while it waits", "before it waits"} {
		if n, err := c.ReadBatch(out(1), 0); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the deadline comes %s: %d, %v", what, n, err)
		}
	}
	u.Close()
	if n, err := c.ReadBatch(out(1), 0); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %d, %v", n, err)
	}
}

// TestTruncated: a datagram longer than its buffers has the flag that x/net gives it.
func TestTruncated(t *testing.T) {
	u, pc := sockets(t)
	read := func(from batcher, to net.Addr, size int) (n, flags int) {
		t.Helper()
		if _, err := pc.WriteTo(make([]byte, 100), to); err != nil {
			t.Fatal(err)
		}
		ms := []ipv4.Message{{Buffers: [][]byte{make([]byte, size)}}}
		if got, err := from.ReadBatch(ms, 0); err != nil || got != 1 {
			t.Fatalf("%d messages, %v", got, err)
		}
		return ms[0].N, ms[0].Flags
	}
	here := net.UDPAddrFromAddrPort(u.LocalAddrPort())
	for _, size := range []int{10, 99, 100, 200} {
		n, flags := read(New(u), here, size)
		wantN, wantFlags := read(ipv4.NewPacketConn(pc), pc.LocalAddr(), size)
		if n != wantN || flags != wantFlags {
			t.Errorf("%d bytes: N %d, flags %#x; x/net has %d, %#x", size, n, flags, wantN,
				wantFlags)
		}
	}
}
