package dns

import (
	"fmt"
	"math/rand/v2"
	"net"

	"golang.org/x/net/dns/dnsmessage"
)

// send sends all open questions to a server, over TCP if that is needed. Otherwise they leave as
// datagrams from a new port, with ids and letter cases that no other transmission has.
func (x *exchange) send(i int) {
	s := &x.servers[i]
	if s.down {
		return
	}
	var sent []sentQuestion
	id := uint16(rand.Uint32())
	for q := range x.questions {
		if x.questions[q].done || x.questions[q].failedAt(i) {
			continue
		}
		if x.config.TCP || s.tcpOnly {
			x.queryTCP(i, q)
			continue
		}
		name := x.name
		if !s.foldsCase {
			mixCase(&name)
		}
		sent = append(sent, sentQuestion{question: q, id: id, name: name, anyCase: s.foldsCase,
			edns: !s.noEDNS})
		id += uint16(1 + rand.Uint32N(0x3fff))
	}
	if !x.config.Reopen {
		x.sendFrom(i, sent)
		return
	}
	for k := range sent {
		x.sendFrom(i, sent[k:k+1])
	}
}

// sendFrom sends questions from a new socket and begins to read from it.
func (x *exchange) sendFrom(i int, sent []sentQuestion) {
	s := &x.servers[i]
	if len(sent) == 0 || s.down {
		return
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.addr))
	if err != nil {
		x.serverDown(i, err)
		return
	}
	s.conns = append(s.conns, c)
	x.readers.Add(1)
	go x.read(i, c, sent)
	var buf [512]byte
	for _, a := range sent {
		q := x.questions[a.question].on(a.name)
		msg, err := pack(buf[:0], a.id, q, a.edns, x.config.TrustAD)
		if err != nil {
			x.finish(a.question, Answer{Err: fmt.Errorf("dns: cannot send: %w", err)})
			continue
		}
		// no route, or an ICMP error about an earlier packet
		if _, err := c.Write(msg); err != nil {
			x.serverDown(i, err)
			return
		}
	}
}

// mixCase gives the letters of a name random cases. A server copies them into its answer; an
// attacker who spoofs an answer has to guess them (draft-vixie-dnsext-dns0x20).
func mixCase(n *dnsmessage.Name) {
	bits, left := rand.Uint64(), 64
	for i := range n.Length {
		c := lower(n.Data[i])
		if c < 'a' || c > 'z' {
			continue
		}
		if left == 0 {
			bits, left = rand.Uint64(), 64
		}
		n.Data[i] = c &^ (byte(bits&1) << 5)
		bits, left = bits>>1, left-1
	}
}

// read delivers every packet from c until c is closed or fails.
func (x *exchange) read(i int, c net.Conn, sent []sentQuestion) {
	defer x.readers.Done()
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			x.deliver(packet{server: i, question: -1, err: err})
			return
		}
		if !x.deliver(x.match(i, buf[:n], sent)) {
			return
		}
	}
}

// match finds the question that a packet answers.
func (x *exchange) match(i int, msg []byte, sent []sentQuestion) packet {
	for _, a := range sent {
		wire := x.questions[a.question].wire // does not change: no lock
		reply, err := parse(msg, a.id, a.name, wire)
		if err == nil && reply.bare && !a.edns {
			continue // not enough to end a question
		}
		if err == nil {
			return packet{server: i, question: a.question, reply: reply, edns: a.edns}
		}
		if err == errCase && a.anyCase {
			if reply, err = parseFolded(msg, a.id, a.name, wire); err == nil {
				return packet{server: i, question: a.question, reply: reply, edns: a.edns}
			}
		}
		if err == errCase {
			return packet{server: i, question: a.question, folded: true}
		}
	}
	return packet{server: i, question: -1, bogus: true}
}

// deliver gives a packet to the goroutine of the exchange. It returns false when the exchange is
// over.
func (x *exchange) deliver(p packet) bool {
	select {
	case x.packets <- p:
		return true
	case <-x.done:
		return false
	}
}
