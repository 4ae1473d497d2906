// Package xnet lets code that was written for the batch calls of golang.org/x/net use a udp.Conn. A
// Conn has the ReadBatch and WriteBatch of an ipv4.PacketConn, and of an ipv6.PacketConn, whose
// Message is the same type.
//
// With an error, both calls return how many messages were done before it, mostly 0. Those of x/net
// return -1 if a system call failed, and 0 if the socket is closed or a deadline has passed. No
// caller can rely on that, so it is not copied.
//
// The package is separate so that package udp does not import x/net.
package xnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/ipv4"

	"github.com/weirnet/weir/udp"
)

// Conn is a udp.Conn with x/net's batch calls.
type Conn struct {
	udp *udp.Conn

	mu      sync.Mutex
	scratch [][]udp.Message
	addrs   map[netip.AddrPort]*net.UDPAddr
}

// addrLimit bounds the addresses that are kept for reuse.
const addrLimit = 1024

// ErrOOB is returned by WriteBatch for a message with control data: a udp.Message has fields
// instead.
var ErrOOB = errors.New("xnet: control data is not supported; use udp.Message")

// New returns c with x/net's calls.
func New(c *udp.Conn) *Conn {
	return &Conn{udp: c, addrs: map[netip.AddrPort]*net.UDPAddr{}}
}

// ReadBatch is ReadBatch of ipv4.PacketConn. NN stays 0, flags must be 0. The addresses are shared
// with later messages of the same sender: do not change them.
func (c *Conn) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	if flags != 0 {
		return 0, fmt.Errorf("xnet: flags %#x: %w", flags, errors.ErrUnsupported)
	}
	msgs := c.borrow(len(ms))
	defer c.giveBack(msgs)
	for i := range ms {
		msgs[i] = udp.Message{Buffers: ms[i].Buffers}
	}
	n, err := c.udp.ReadBatch(msgs)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range n {
		ms[i].N, ms[i].NN, ms[i].Flags = msgs[i].N, 0, 0
		if msgs[i].Truncated {
			ms[i].Flags = truncatedFlag
		}
		ms[i].Addr = c.addrLocked(msgs[i].Addr)
	}
	return n, err
}

// WriteBatch is WriteBatch of ipv4.PacketConn, except that it passes all messages to the kernel,
// not only as many as one system call takes. Flags must be 0. An address is a *net.UDPAddr, or nil
// on a connected Conn.
func (c *Conn) WriteBatch(ms []ipv4.Message, flags int) (int, error) {
	if flags != 0 {
		return 0, fmt.Errorf("xnet: flags %#x: %w", flags, errors.ErrUnsupported)
	}
	msgs := c.borrow(len(ms))
	defer c.giveBack(msgs)
	good, bad := 0, error(nil)
	for i := range ms {
		msgs[i] = udp.Message{Buffers: ms[i].Buffers}
		if a, ok := ms[i].Addr.(*net.UDPAddr); ok {
			ap := a.AddrPort()
			msgs[i].Addr = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
		}
		if len(ms[i].OOB) > 0 {
			bad = ErrOOB
			break
		}
		good++
	}
	n, err := c.udp.WriteBatch(msgs[:good])
	for i := range n {
		ms[i].N = msgs[i].N
	}
	if err == nil {
		err = bad
	}
	return n, err
}

func (c *Conn) addrLocked(a netip.AddrPort) *net.UDPAddr {
	u := c.addrs[a]
	if u == nil {
		if len(c.addrs) >= addrLimit {
			clear(c.addrs)
		}
		u = net.UDPAddrFromAddrPort(a)
		c.addrs[a] = u
	}
	return u
}

func (c *Conn) borrow(n int) []udp.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := len(c.scratch); k > 0 {
		s := c.scratch[k-1]
		c.scratch = c.scratch[:k-1]
		if cap(s) >= n {
			return s[:n]
		}
	}
	return make([]udp.Message, n)
}

func (c *Conn) giveBack(msgs []udp.Message) {
	clear(msgs)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.scratch) < 8 {
		c.scratch = append(c.scratch, msgs)
	}
}
