package main

import (
	"encoding/binary"
	"errors"
	"log"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/weirnet/weir/udp"
)

const (
	headerSize   = 12 // RFC 1035 section 4.1.1; the first two bytes are the id
	maxOpen      = 1 << 12
	queryTimeout = 2 * time.Second
)

// question is an open one.
type question struct {
	client netip.AddrPort
	local  netip.Addr // the address that was asked
	link   int
	id     uint16 // the client's
	asked  time.Time
}

// resolver is where questions go. They get ids of their own: clients may use the same.
type resolver struct {
	conn  *udp.Conn
	mu    sync.Mutex
	byID  map[uint16]question
	order []entry // by age; those that were answered are still in it
}

type entry struct {
	id    uint16
	asked time.Time
}

// open returns the number of open questions, without those that are too old.
func (r *resolver) open(now time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.order) > 0 {
		first := r.order[0]
		q, ok := r.byID[first.id]
		if ok && q.asked.Equal(first.asked) {
			if now.Sub(first.asked) < queryTimeout {
				break
			}
			delete(r.byID, first.id)
		}
		r.order = r.order[1:]
	}
	return len(r.byID)
}

// keep remembers who asked and gives the question an id that is hard to guess: a forged answer
// needs it, and the port of the socket.
func (r *resolver) keep(m *udp.Message, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[uint16]question{}
	}
	id := uint16(rand.Uint32())
	for range 64 { // at most one of 16 ids is in use
		if _, used := r.byID[id]; !used {
			break
		}
		id = uint16(rand.Uint32())
	}
	if _, used := r.byID[id]; used {
		return false
	}
	data := m.Payload()
	r.byID[id] = question{m.Addr, m.Local, m.IfIndex, binary.BigEndian.Uint16(data), now}
	r.order = append(r.order, entry{id, now})
	binary.BigEndian.PutUint16(data, id)
	return true
}

// take finds the question of an answer and ends it.
func (r *resolver) take(id uint16) (question, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q, ok := r.byID[id]
	delete(r.byID, id)
	return q, ok
}

// answer passes answers to those who asked.
func (r *resolver) answer(front *udp.Conn) {
	msgs, out := messages(), []udp.Message(nil)
	for {
		n, err := r.conn.ReadBatch(msgs)
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil { // no one listens there: ICMP says so
			log.Print("dnsbalancer: ", err)
			continue
		}
		out = out[:0]
		for i := range msgs[:n] {
			if msgs[i].N < headerSize {
				continue
			}
			data := msgs[i].Payload()
			if q, ok := r.take(binary.BigEndian.Uint16(data)); ok {
				binary.BigEndian.PutUint16(data, q.id)
				out = append(out, udp.Message{Buffers: payload(&msgs[i]), Addr: q.client,
					Local: q.local, IfIndex: q.link})
			}
		}
		send(front, out)
	}
}
