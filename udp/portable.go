package udp

import (
	"fmt"
	"net"
	"net/netip"
)

// portable moves messages one by one through package net. Systems without recvmmsg use it, and the
// tests compare the rings with it.
type portable struct {
	pc        *net.UDPConn
	connected bool
	stats     *counters
}

func (c *portable) read(msgs []Message) (int, error) {
	m := &msgs[0]
	m.clear()
	buf := []byte(nil)
	scratch := len(m.Buffers) > 1
	switch {
	case scratch:
		buf = make([]byte, m.size())
	case len(m.Buffers) == 1:
		buf = m.Buffers[0]
	}
	n, _, flags, from, err := c.pc.ReadMsgUDPAddrPort(buf, nil)
	if err != nil {
		return 0, err
	}
	m.N, m.Addr = n, netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	m.Truncated = flags&truncatedFlag != 0
	if scratch {
		rest := buf[:n]
		for _, b := range m.Buffers {
			rest = rest[copy(b, rest):]
		}
	}
	c.stats.readCalls.Add(1)
	c.stats.readPackets.Add(1)
	if m.Truncated {
		c.stats.truncated.Add(1)
	}
	return 1, nil
}

func (c *portable) write(msgs []Message) (int, error) {
	for i := range msgs {
		m := &msgs[i]
		if m.Local.IsValid() || m.IfIndex != 0 || m.ECN != NotECT {
			return i, fmt.Errorf("udp: source address and ECN of a message: %w", unsupported(""))
		}
		if !c.connected && !m.Addr.IsValid() {
			return i, fmt.Errorf("udp: write to %s: %w", m.Addr, ErrFamily)
		}
		if err := c.writeOne(m); err != nil {
			return i, err
		}
		m.N = m.size()
		c.stats.writePackets.Add(1)
	}
	c.stats.writeCalls.Add(1)
	return len(msgs), nil
}

func (c *portable) writeOne(m *Message) error {
	payload := []byte(nil)
	if len(m.Buffers) == 1 {
		payload = m.Buffers[0]
	} else {
		for _, b := range m.Buffers {
			payload = append(payload, b...)
		}
	}
	for {
		n := len(payload)
		if m.Segment > 0 {
			n = min(n, m.Segment)
		}
		var err error
		if c.connected {
			_, err = c.pc.Write(payload[:n])
		} else {
			_, err = c.pc.WriteToUDPAddrPort(payload[:n], m.Addr)
		}
		if payload = payload[n:]; err != nil || len(payload) == 0 {
			return err
		}
	}
}
