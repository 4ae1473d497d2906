package udp

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// PacketConn adapts a Conn to net.PacketConn, for code that reads and writes one datagram at a
// time. It reads batches, and GRO packets, from the kernel and returns them one by one. Do not read
// from the Conn as well.
type PacketConn struct {
	conn *Conn

	mu     sync.Mutex // held while waiting: readers take turns
	reader *Reader
	ready  []Message
}

var _ net.PacketConn = (*PacketConn)(nil)

// PacketConn returns the Conn as a net.PacketConn.
func (c *Conn) PacketConn() *PacketConn {
	return &PacketConn{conn: c, reader: c.NewReader(8)}
}

// ReadFromAddrPort reads one datagram; what does not fit into b is lost. It allocates nothing.
func (p *PacketConn) ReadFromAddrPort(b []byte) (int, netip.AddrPort, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.ready) == 0 {
		msgs, err := p.reader.ReadBatch()
		if err != nil {
			return 0, netip.AddrPort{}, err
		}
		p.ready = msgs
	}
	m := &p.ready[0]
	p.ready = p.ready[1:]
	return copy(b, m.Payload()), m.Addr, nil
}

// WriteToAddrPort sends one datagram.
func (p *PacketConn) WriteToAddrPort(b []byte, addr netip.AddrPort) (int, error) {
	msgs := []Message{{Buffers: [][]byte{b}, Addr: addr}}
	if _, err := p.conn.WriteBatch(msgs); err != nil {
		return 0, err
	}
	return len(b), nil
}

// ReadFrom implements net.PacketConn.
func (p *PacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := p.ReadFromAddrPort(b)
	if err != nil {
		return 0, nil, err
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// WriteTo implements net.PacketConn. The address is a *net.UDPAddr.
func (p *PacketConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	to := addrPortOf(addr)
	if !to.IsValid() {
		return 0, fmt.Errorf("udp: write to %v: %w", addr, ErrFamily)
	}
	return p.WriteToAddrPort(b, to)
}

// Close closes the Conn.
func (p *PacketConn) Close() error { return p.conn.Close() }

// LocalAddr returns the Conn's address as a *net.UDPAddr.
func (p *PacketConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(p.conn.LocalAddrPort()) }

// SetDeadline implements net.PacketConn.
func (p *PacketConn) SetDeadline(t time.Time) error { return p.conn.SetDeadline(t) }

// SetReadDeadline implements net.PacketConn.
func (p *PacketConn) SetReadDeadline(t time.Time) error { return p.conn.SetReadDeadline(t) }

// SetWriteDeadline implements net.PacketConn.
func (p *PacketConn) SetWriteDeadline(t time.Time) error { return p.conn.SetWriteDeadline(t) }
