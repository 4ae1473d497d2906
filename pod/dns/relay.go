package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// resolverTime is how long one resolver has for an answer, and rounds how often each is asked.
const (
	resolverTime = 2 * time.Second
	rounds       = 2
	mostServers  = 3 // as glibc
	// mostDatagram is how long an answer of a resolver over UDP may be, by RFC 6891 section 6.2.5.
	// The pod asks over TCP for a longer one. Each query on its way needs so much memory.
	mostDatagram = 4096
)

var errNoResolver = errors.New("no resolver of the host answered")

// relay sends a query to the resolvers of the host, one after the other, with an id of its own and
// from a port of its own. It returns the answer with the id of the query. Both are random: one who
// does not see the query cannot forge an answer.
func (s *Server) relay(msg []byte, q *query, tcp bool) ([]byte, error) {
	servers := s.config.Resolvers()
	servers = slices.DeleteFunc(slices.Clone(servers), func(a netip.AddrPort) bool {
		return slices.Contains(s.config.Gateways, a.Addr()) // the host asks us
	})
	if len(servers) > mostServers {
		servers = servers[:mostServers]
	}
	for range rounds {
		for _, server := range servers {
			id := uint16(s.random())
			out := slices.Clone(msg)
			binary.BigEndian.PutUint16(out, id)
			in, err := s.exchange(out, id, q, server, tcp)
			if s.ctx.Err() != nil {
				return nil, s.ctx.Err()
			}
			if err != nil {
				continue
			}
			binary.BigEndian.PutUint16(in, q.header.ID)
			return in, nil
		}
	}
	return nil, errNoResolver
}

// exchange sends a query to a resolver and waits for its answer.
func (s *Server) exchange(msg []byte, id uint16, q *query, server netip.AddrPort, tcp bool) ([]byte,
	error) {
	network := "udp"
	if tcp {
		network = "tcp"
	}
	d := net.Dialer{Timeout: s.resolverTime}
	c, err := d.DialContext(s.ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(s.ctx, func() { c.Close() })() // Close does not wait for resolvers
	if err := c.SetDeadline(time.Now().Add(s.resolverTime)); err != nil {
		return nil, err
	}
	if tcp {
		if err := writeMessage(c, msg); err != nil {
			return nil, err
		}
		in, err := readMessage(c, math.MaxUint16)
		if err == nil && !answers(in, id, q) {
			err = errNoResolver
		}
		return in, err
	}
	if _, err := c.Write(msg); err != nil {
		return nil, err
	}
	buf := make([]byte, mostDatagram+1)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return nil, err
		}
		if !answers(buf[:n], id, q) {
			continue
		}
		if n <= mostDatagram {
			return buf[:n], nil
		}
		return q.message(dnsmessage.RCodeSuccess, false, nil, true)
	}
}

// answers reports whether a message answers a query that was sent with an id.
func answers(msg []byte, id uint16, q *query) bool {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || !h.Response || h.ID != id {
		return false
	}
	question, err := p.Question()
	if errors.Is(err, dnsmessage.ErrSectionDone) {
		return h.RCode != dnsmessage.RCodeSuccess // an error need not repeat it
	}
	return err == nil && question.Type == q.question.Type && question.Class == q.question.Class &&
		strings.EqualFold(question.Name.String(), q.question.Name.String())
}
