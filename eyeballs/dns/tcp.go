package dns

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
)

// queryTCP sends one question to a server over TCP (RFC 7766), once, in a goroutine of its own.
func (x *exchange) queryTCP(i, q int) {
	s, question := &x.servers[i], &x.questions[q]
	if question.tcp == nil {
		question.tcp = make([]bool, len(x.servers))
	}
	if question.tcp[i] {
		return
	}
	question.tcp[i] = true
	id, edns := uint16(rand.Uint32()), !s.noEDNS
	msg, err := pack(make([]byte, 2, 514), id, question.on(x.name), edns, x.config.TrustAD)
	if err != nil {
		x.finish(q, Answer{Err: err})
		return
	}
	binary.BigEndian.PutUint16(msg, uint16(len(msg)-2))
	addr, timeout := s.addr.String(), x.config.Timeout
	x.readers.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		stop := make(chan struct{})
		defer close(stop)
		go func() { // the exchange may end before the server answers
			select {
			case <-x.done:
				cancel()
			case <-stop:
			}
		}()
		p := packet{server: i, question: q, tcp: true, edns: edns}
		var answer []byte
		if answer, p.err = tcpExchange(ctx, addr, msg); p.err == nil {
			p.reply, p.err = parse(answer, id, x.name, question.wire)
			if p.err == errCase { // over TCP only the server can answer
				p.reply, p.err = parseFolded(answer, id, x.name, question.wire)
			}
		}
		if p.err != nil {
			p.err = errServer("over TCP: "+p.err.Error(), x.full, s.addr)
		}
		x.deliver(p)
	})
}

func tcpExchange(ctx context.Context, addr string, msg []byte) ([]byte, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := c.Write(msg); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err = io.ReadFull(c, answer)
	return answer, err
}
