package udp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func (c *Conn) readBatch(msgs []Message) (int, error) {
	r := c.sys.readers.get(c)
	defer r.release()
	r.grow(len(msgs))
	msgs = msgs[:min(len(msgs), len(r.headers))]
	if err := r.layOutRead(msgs); err != nil {
		return 0, err
	}
	if err := c.sys.run(&c.sys.read, r.recv); err != nil {
		return 0, fmt.Errorf("udp: read on %s: %w", c.local, err)
	}
	if r.errno != 0 {
		if c.config.Errors && isQueued(r.errno) {
			return 0, ErrQueued
		}
		return 0, fmt.Errorf("udp: read on %s: %w", c.local, r.errno)
	}
	r.readResults(msgs[:r.done])
	return r.done, nil
}

// layOutRead points the headers to the messages' buffers.
func (r *ring) layOutRead(msgs []Message) error {
	c := r.conn
	gro, control := c.sys.gro, c.sys.control
	if gro {
		control = true
	}
	for i := range msgs {
		m := &msgs[i]
		if gro && m.size() < MaxPayload {
			return ErrShortBuffer
		}
		for _, b := range m.Buffers {
			// never combined: the kernel fills the caller's pieces one by one
			r.addVector(b, len(r.vectors))
		}
	}
	first := 0
	for i := range msgs {
		h := &r.headers[i].Hdr
		h.Name = (*byte)(ptr(&r.names[i]))
		h.Namelen = unix.SizeofSockaddrInet6
		h.Iov, h.Control = nil, nil
		n := 0
		for _, b := range msgs[i].Buffers {
			if len(b) > 0 {
				n++
			}
		}
		if n > 0 {
			h.Iov = &r.vectors[first]
		}
		h.SetIovlen(n)
		first += n
		if control {
			h.Control = &r.controlOf(i)[:1][0]
			h.SetControllen(controlSize)
		} else {
			h.SetControllen(0)
		}
		h.Flags = 0
	}
	r.count = len(msgs)
	return nil
}

// readResults fills the messages with what the kernel wrote.
func (r *ring) readResults(msgs []Message) {
	c := r.conn
	var coalesced uint64
	for i := range msgs {
		m, h := &msgs[i], &r.headers[i]
		m.clear()
		m.N = int(h.Len)
		m.Addr = getName(&r.names[i], h.Hdr.Namelen, &c.sys.zones)
		if h.Hdr.Flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			if h.Hdr.Flags&unix.MSG_TRUNC != 0 {
				m.Truncated = true
				c.stats.truncated.Add(1)
			}
			if h.Hdr.Flags&unix.MSG_CTRUNC != 0 {
				c.stats.controlTruncated.Add(1)
			}
		}
		if h.Hdr.Control != nil && h.Hdr.Controllen > 0 {
			n := min(int(h.Hdr.Controllen), controlSize)
			got := parseControl(r.controlOf(i)[:n], m)
			if got.hasDrops {
				c.stats.dropped.Store(got.drops)
			}
			if m.Segment >= m.N {
				m.Segment = 0
			}
			if m.Segment > 0 {
				coalesced++
			}
		}
	}
	c.stats.readCalls.Add(1)
	c.stats.readPackets.Add(uint64(len(msgs)))
	if coalesced > 0 {
		c.stats.readGRO.Add(coalesced)
	}
}
