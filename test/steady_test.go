package test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// steady is a stream of numbered datagrams from one pod to another, one each millisecond, none of
// which may be lost. The sender waits while many are on their way: none finds a queue full because
// the receiver has to wait for its turn.
type steady struct {
	from   net.Conn
	to     net.PacketConn
	stop   chan struct{}
	sent   chan uint32 // how many, when there is an end
	failed chan error
	came   atomic.Uint32
}

func newSteady(t *testing.T, from, to *nstest.Node, addr netip.Addr) *steady {
	t.Helper()
	s := &steady{stop: make(chan struct{}), sent: make(chan uint32, 1), failed: make(chan error, 2)}
	var err error
	if s.to, err = to.ListenPacket("udp", netip.AddrPortFrom(addr, 7).String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.to.Close() })
	if s.from, err = from.DialContext(t.Context(), "udp", s.to.LocalAddr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.from.Close() })
	go s.send()
	go s.receive()
	return s
}

func (s *steady) send() {
	const most = 64 // on their way; the buffer of a socket takes more
	for n := uint32(0); ; {
		select {
		case <-s.stop:
			s.sent <- n
			return
		case <-time.After(time.Millisecond):
		}
		if n-s.came.Load() >= most {
			continue
		}
		if _, err := s.from.Write(binary.BigEndian.AppendUint32(nil, n)); err != nil {
			s.failed <- err
			s.sent <- n
			return
		}
		n++
	}
}

// receive counts datagrams, each once. One may overtake another if the sender moves to another CPU.
func (s *steady) receive() {
	b := make([]byte, 100)
	seen := map[uint32]bool{}
	for {
		n, _, err := s.to.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err == nil && (n != 4 || seen[binary.BigEndian.Uint32(b)]) {
			err = errors.New("a datagram is damaged, or comes twice")
		}
		if err != nil {
			s.failed <- err
			return
		}
		seen[binary.BigEndian.Uint32(b)] = true
		s.came.Add(1)
	}
}

// end ends the stream once a thousand datagrams were sent: each must have come.
func (s *steady) end(t *testing.T) {
	t.Helper()
	for stop := time.Now().Add(testTimeout); s.came.Load() < 1000 && len(s.failed) == 0 &&
		time.Now().Before(stop); {
		time.Sleep(time.Millisecond)
	}
	close(s.stop)
	n := <-s.sent
	for stop := time.Now().Add(testTimeout); s.came.Load() < n && len(s.failed) == 0 &&
		time.Now().Before(stop); {
		time.Sleep(time.Millisecond)
	}
	t.Logf("%d of %d datagrams between two pods came", s.came.Load(), n)
	if s.came.Load() != n || n < 1000 {
		t.Errorf("%d of %d datagrams between two pods came", s.came.Load(), n)
	}
	if len(s.failed) > 0 {
		t.Error(<-s.failed)
	}
}
