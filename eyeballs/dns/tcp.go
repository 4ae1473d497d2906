package dns

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
)

// overTCP asks a server one question over TCP (RFC 7766), once, in a goroutine of
// its own.
func (f *flight) overTCP(i, q int) {
	s, query := &f.servers[i], &f.queries[q]
	if query.tcp == nil {
		query.tcp = make([]bool, len(f.servers))
	}
	if query.tcp[i] {
		return
	}
	query.tcp[i] = true
	id := uint16(rand.Uint32())
	msg, err := pack(make([]byte, 2, 514), id, f.name, query.wire, !s.plain, f.config.TrustAD)
	if err != nil {
		f.finish(q, Answer{Err: err})
		return
	}
	binary.BigEndian.PutUint16(msg, uint16(len(msg)-2))
	addr, timeout := s.addr.String(), f.config.Timeout
	f.readers.Add(1)
	go func() {
		defer f.readers.Done()
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		stop := make(chan struct{})
		defer close(stop)
		go func() { // the flight may end before the server answers
			select {
			case <-f.done:
				cancel()
			case <-stop:
			}
		}()
		p := packet{server: i, query: q, tcp: true}
		var answer []byte
		if answer, p.err = tcpExchange(ctx, addr, msg); p.err == nil {
			p.reply, p.err = parse(answer, id, f.name, query.wire)
			if p.err == errCase { // nobody else could answer here
				p.reply, p.err = parseFolded(answer, id, f.name, query.wire)
			}
		}
		if p.err != nil {
			p.err = errServer("over TCP: "+p.err.Error(), f.full, s.addr)
		}
		f.hand(p)
	}()
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
