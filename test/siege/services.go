package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
)

// services are the servers of a testbed.
type services struct {
	closers []io.Closer

	mu    sync.Mutex
	peers map[uint64]netip.AddrPort // guarded by mu; by its first eight bytes, who a server saw
}

// serve starts an echo server and answering UDP servers in the host, in the pod web and outside.
func (w *testbed) serve() error {
	w.services = &services{peers: map[uint64]netip.AddrPort{}}
	for _, at := range []struct {
		node *nstest.Node
		addr string
	}{{w.host, ""}, {w.web, ""}, {w.outside, userAddr}} {
		if err := w.services.tcp(at.node, fmt.Sprintf("%s:%d", at.addr, echoPort)); err != nil {
			return err
		}
		if err := w.services.udp(at.node, fmt.Sprintf("%s:%d", at.addr, answerPort),
			true); err != nil {
			return err
		}
	}
	if err := w.services.udp(w.host, fmt.Sprintf(":%d", silentPort), false); err != nil {
		return err
	}
	return w.services.sctp(w.host)
}

// tcp echoes. The first eight bytes of a connection name it.
func (s *services) tcp(n *nstest.Node, addr string) error {
	l, err := n.Listen("tcp4", addr)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, l)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.echo(c)
		}
	}()
	return nil
}

func (s *services) echo(c net.Conn) {
	defer c.Close()
	b := make([]byte, 4096)
	if _, err := io.ReadFull(c, b[:8]); err != nil {
		return
	}
	if id := idOf(b); id != 0 {
		s.mu.Lock()
		s.peers[id] = c.RemoteAddr().(*net.TCPAddr).AddrPort()
		s.mu.Unlock()
	}
	if _, err := c.Write(b[:8]); err != nil {
		return
	}
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if _, err := c.Write(b[:n]); err != nil {
			return
		}
	}
}

// peer returns who a server saw as the other end of a connection.
func (s *services) peer(id uint64) netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peers[id]
}

func (s *services) udp(n *nstest.Node, addr string, answers bool) error {
	c, err := n.ListenPacket("udp4", addr)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, c)
	u, ok := c.(*net.UDPConn)
	if !ok {
		return errors.New("no UDP socket")
	}
	if err := u.SetReadBuffer(4 << 20); err != nil {
		return err
	}
	for range 2 {
		go func() {
			for b := make([]byte, 2048); ; {
				k, from, err := u.ReadFromUDPAddrPort(b)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil && answers {
					u.WriteToUDPAddrPort(b[:k], from)
				}
			}
		}()
	}
	return nil
}

// sctp answers each INIT with an INIT ACK (RFC 9260 3.3.3) and nothing else.
func (s *services) sctp(n *nstest.Node) error {
	c, err := n.ListenPacket("ip4:132", "0.0.0.0")
	if err != nil {
		return err
	}
	s.closers = append(s.closers, c)
	go func() {
		for b := make([]byte, 2048); ; {
			k, from, err := c.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil || k < 32 || b[12] != 1 {
				continue
			}
			answer, err := build.Packet(build.IPv4{Src: netip.IPv4Unspecified(),
				Dst: netip.IPv4Unspecified()},
				build.SCTP{SrcPort: be16(b[2:]), DstPort: be16(b), VTag: be32(b[16:])},
				build.Data(append([]byte{2, 0, 0, 20}, b[16:32]...)))
			if err == nil {
				c.WriteTo(answer[20:], from)
			}
		}
	}()
	return nil
}

func (s *services) close() {
	for _, c := range s.closers {
		c.Close()
	}
}

// openFiles is how many files a siege may need: both ends of the connections that fall silent.
const openFiles = 1 << 19

// raiseFiles raises the limit of open files, as far as it goes without the right to go further.
func raiseFiles() error {
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: openFiles, Max: openFiles}) == nil {
		return nil
	}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return err
	}
	r.Cur = r.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &r)
}

// mayConnect is how many connections such an attack may hold: the work has to find files, too.
func mayConnect() (int, error) {
	var r unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r)
	return int(min(r.Cur, openFiles)/2 - min(r.Cur, openFiles)/8), err
}
