package udp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is a UDP socket that reads and writes messages in batches. Its methods may be called by
// several goroutines at once.
type Conn struct {
	config        Config
	family        family
	connected     bool
	local, remote netip.AddrPort

	sys   system
	stats counters
}

// family is the set of addresses that a socket can send to.
type family uint8

const (
	familyV4   family = iota // an AF_INET socket
	familyV6                 // an AF_INET6 socket with IPV6_V6ONLY
	familyDual               // an AF_INET6 socket that carries IPv4 as mapped addresses
)

// counters holds Stats as atomics.
type counters struct {
	readCalls, writeCalls, readPackets, writePackets, readGRO, writeGSO atomic.Uint64
	truncated, controlTruncated, gsoRefused, retried                    atomic.Uint64
	errorsQueued, errorsDropped                                         atomic.Uint64
	dropped                                                             atomic.Uint32
}

// Listen opens a socket bound to local. The network is "udp4", "udp6" or "udp"; "udp" with an IPv6
// wildcard, or with the zero AddrPort, is dual stack where the system supports it. Port 0 lets the
// system choose.
func Listen(network string, local netip.AddrPort, config Config) (*Conn, error) {
	address := ":0"
	if local.IsValid() {
		address = local.String()
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return beforeBind(raw, &config)
	}}
	pc, err := lc.ListenPacket(context.Background(), network, address)
	if err != nil {
		return nil, fmt.Errorf("udp: listen on %s: %w", address, err)
	}
	return newConn(pc.(*net.UDPConn), config, false)
}

// Dial opens a socket that is connected to remote: it sends only to it, and receives only from it.
func Dial(network string, remote netip.AddrPort, config Config) (*Conn, error) {
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return beforeBind(raw, &config)
	}}
	pc, err := d.Dial(network, remote.String())
	if err != nil {
		return nil, fmt.Errorf("udp: connect to %s: %w", remote, err)
	}
	return newConn(pc.(*net.UDPConn), config, true)
}

// ListenGroup opens n sockets that share one address (SO_REUSEPORT), one for each worker. The
// kernel assigns every flow to one of them.
func ListenGroup(network string, local netip.AddrPort, n int, config Config) ([]*Conn, error) {
	config.ReusePort = true
	var group []*Conn
	for range n {
		c, err := Listen(network, local, config)
		if err != nil {
			for _, c := range group {
				c.Close()
			}
			return nil, err
		}
		group = append(group, c)
		if len(group) == 1 {
			local = netip.AddrPortFrom(local.Addr(), c.LocalAddrPort().Port())
			if !local.Addr().IsValid() {
				local = netip.AddrPortFrom(netip.IPv6Unspecified(), local.Port())
				if c.family == familyV4 {
					local = netip.AddrPortFrom(netip.IPv4Unspecified(), local.Port())
				}
			}
		}
	}
	return group, nil
}

func newConn(pc *net.UDPConn, config Config, connected bool) (*Conn, error) {
	c := &Conn{config: config, connected: connected}
	c.local, c.remote = addrPortOf(pc.LocalAddr()), addrPortOf(pc.RemoteAddr())
	if err := c.setup(pc); err != nil {
		pc.Close()
		return nil, fmt.Errorf("udp: set up %s: %w", c.local, err)
	}
	return c, nil
}

// ReadBatch waits until at least one message has arrived, and fills msgs from the front with those
// that are there. It returns their number, which is 0 with an error.
func (c *Conn) ReadBatch(msgs []Message) (n int, err error) {
	if len(msgs) == 0 {
		return 0, nil
	}
	return c.readBatch(msgs)
}

// WriteBatch passes all messages to the kernel, in order, and returns how many it took. When that
// is less than len(msgs), err says why msgs[n] could not be sent; the caller may continue with the
// next message.
func (c *Conn) WriteBatch(msgs []Message) (n int, err error) {
	if len(msgs) == 0 {
		return 0, nil
	}
	return c.writeBatch(msgs)
}

// Close closes the socket. Calls that wait return net.ErrClosed.
func (c *Conn) Close() error { return c.sys.close() }

// LocalAddrPort returns the address that the socket is bound to.
func (c *Conn) LocalAddrPort() netip.AddrPort { return c.local }

// RemoteAddrPort returns the address that the socket is connected to, or the zero value.
func (c *Conn) RemoteAddrPort() netip.AddrPort { return c.remote }

func addrPortOf(a net.Addr) netip.AddrPort {
	u, ok := a.(*net.UDPAddr)
	if !ok || u == nil {
		return netip.AddrPort{}
	}
	ap := u.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// SetDeadline sets the read deadline and the write deadline.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.sys.setReadDeadline(t); err != nil {
		return err
	}
	return c.sys.setWriteDeadline(t)
}

// SetReadDeadline makes reads fail with os.ErrDeadlineExceeded from t on; the zero value means
// never.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.sys.setReadDeadline(t) }

// SetWriteDeadline makes writes fail with os.ErrDeadlineExceeded from t on; the zero value means
// never.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.sys.setWriteDeadline(t) }

var _ syscall.Conn = (*Conn)(nil)

// SyscallConn implements syscall.Conn: it gives access to the socket, for options that Config does
// not have. On Linux the error is always nil.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.sys.rawConn() }

// Stats returns the counters.
func (c *Conn) Stats() Stats {
	s := &c.stats
	return Stats{
		ReadCalls: s.readCalls.Load(), WriteCalls: s.writeCalls.Load(),
		ReadPackets: s.readPackets.Load(), WritePackets: s.writePackets.Load(),
		ReadGRO: s.readGRO.Load(), WriteGSO: s.writeGSO.Load(),
		Dropped: uint64(s.dropped.Load()), Truncated: s.truncated.Load(),
		ControlTruncated: s.controlTruncated.Load(),
		GSORefused:       s.gsoRefused.Load(), Retried: s.retried.Load(),
		ErrorsQueued: s.errorsQueued.Load(), ErrorsDropped: s.errorsDropped.Load(),
	}
}
