package udp

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

func TestPacketConn(t *testing.T) {
	p := listen(t, "udp4", localhost("udp4"), Config{GRO: true}).PacketConn()
	q := listen(t, "udp4", localhost("udp4"), Config{}).PacketConn()
	for i := range 10 {
		if n, err := q.WriteTo(make([]byte, 10+i), p.LocalAddr()); n != 10+i || err != nil {
			t.Fatal(n, err)
		}
	}
	for i := range 10 {
		b := make([]byte, 15)
		n, from, err := p.ReadFrom(b)
		if n != min(10+i, 15) || from.String() != q.LocalAddr().String() || err != nil {
			t.Fatal(n, from, err)
		}
	}
	if _, err := q.WriteTo([]byte{1}, &net.IPAddr{}); !errors.Is(err, ErrFamily) {
		t.Errorf("address of another kind: %v", err)
	}
	p.SetReadDeadline(time.Now())
	if _, _, err := p.ReadFrom(nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	var timeout net.Error
	if _, _, err := p.ReadFrom(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v is not a time-out of package net", err)
	}
	p.Close()
	if _, _, err := p.ReadFrom(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
