package dns

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"
)

func (s *Server) serveTCP(l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		if s.ctx.Err() != nil {
			if err == nil {
				c.Close()
			}
			return
		}
		if err != nil { // too many descriptors, or a connection that ended
			select {
			case <-s.ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		who := netip.Addr{}
		if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			who = a.AddrPort().Addr().Unmap()
		}
		if !s.allowed(who) {
			c.Close()
			continue
		}
		if !s.conns.take(who) {
			s.dropped.Add(1)
			c.Close()
			continue
		}
		s.running.Go(func() {
			defer s.conns.give(who)
			s.serveConn(c, who)
		})
	}
}

// serveConn answers the queries of a pod's connection one after the other.
func (s *Server) serveConn(c *net.TCPConn, who netip.Addr) {
	defer c.Close()
	end := make(chan struct{})
	defer close(end)
	s.running.Go(func() { // Close does not wait for idle connections
		select {
		case <-s.ctx.Done():
			c.Close()
		case <-end:
		}
	})
	for {
		if c.SetDeadline(time.Now().Add(s.connIdle)) != nil {
			return
		}
		msg, err := readMessage(c, mostQuery)
		if err != nil {
			return
		}
		out, q, v := s.answer(msg, who, true)
		switch v {
		case drop:
			return
		case reply:
			s.answered.Add(1)
		case forward:
			out = s.ask(msg, &q, true) // which may take longer than a connection may be idle
			if c.SetDeadline(time.Now().Add(s.connIdle)) != nil {
				return
			}
		}
		if out == nil || writeMessage(c, out) != nil {
			return
		}
	}
}

var errTooLong = errors.New("the message is too long")

// readMessage reads a message of at most so many bytes with its length in front (RFC 1035 4.2.2).
func readMessage(r io.Reader, most int) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint16(head[:]))
	if length > most {
		return nil, errTooLong
	}
	msg := make([]byte, length)
	_, err := io.ReadFull(r, msg)
	return msg, err
}

func writeMessage(w io.Writer, msg []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...))
	return err
}
