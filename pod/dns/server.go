package dns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Port is where name servers listen.
const Port = 53

const (
	// mostQueries is how many queries may be on their way to the resolvers of the host, and
	// podQueries how many of one pod.
	mostQueries, podQueries = 512, 64
	// mostConns is how many connections there may be, and podConns how many of one pod.
	mostConns, podConns = 128, 8
	// few is how many queries, and connections, a pod may have although all that there may be are
	// taken. So a few pods that ask for what no one answers do not keep the others from names.
	few = 2
	// mostQuery is how long a query may be: one question with options and a signature. A connection
	// with a longer one ends.
	mostQuery = 4096
	// connIdle is how long a connection may be idle.
	connIdle = 10 * time.Second
)

// Config is what a Server needs.
type Config struct {
	Gateways []netip.Addr   // where to listen
	Ranges   []netip.Prefix // of the pods
	Names    *Names
	// Resolvers are the name servers of the host.
	Resolvers func() []netip.AddrPort
}

// Stats are the counters of a Server.
type Stats struct {
	Answered  uint64 // from the names of pods
	Forwarded uint64 // answered by a resolver of the host
	Failed    uint64 // no resolver answered
	Refused   uint64 // from others than pods
	Dropped   uint64 // too many at once
}

// Server is a name server that listens.
type Server struct {
	config  Config
	names   *Names
	random  func() uint32
	queries *quota
	conns   *quota
	closers []func() error
	running sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
	// What the constants of these names say. Tests on a busy machine wait longer.
	resolverTime, connIdle time.Duration

	answered, forwarded, failed, refused, dropped atomic.Uint64
}

// Listen starts a Server. It has all sockets, or none.
func Listen(c Config) (*Server, error) {
	s := &Server{config: c, names: c.Names, random: rand.Uint32,
		queries: newQuota(mostQueries, podQueries), conns: newQuota(mostConns, podConns),
		resolverTime: resolverTime, connIdle: connIdle}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, gateway := range c.Gateways {
		if err := s.listen(netip.AddrPortFrom(gateway, Port)); err != nil {
			return nil, errors.Join(fmt.Errorf("name server of the pods: %w", err), s.Close())
		}
	}
	return s, nil
}

func (s *Server) listen(at netip.AddrPort) error {
	u, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	s.closers = append(s.closers, u.Close)
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	s.closers = append(s.closers, l.Close)
	s.running.Go(func() { s.serveUDP(u) })
	s.running.Go(func() { s.serveTCP(l) })
	return nil
}

// Close ends the Server and waits for what is under way.
func (s *Server) Close() error {
	s.cancel()
	var errs []error
	for _, end := range s.closers {
		errs = append(errs, end())
	}
	s.running.Wait()
	return errors.Join(errs...)
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	return Stats{s.answered.Load(), s.forwarded.Load(), s.failed.Load(), s.refused.Load(),
		s.dropped.Load()}
}

func (s *Server) inRanges(a netip.Addr) bool {
	return slices.ContainsFunc(s.config.Ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// allowed reports whether an address may ask: a pod's, or the host's own gateway address.
func (s *Server) allowed(a netip.Addr) bool {
	if _, ok := s.names.owner(a); ok || slices.Contains(s.config.Gateways, a) {
		return true
	}
	s.refused.Add(1)
	return false
}

func (s *Server) serveUDP(u *net.UDPConn) {
	buf := make([]byte, mostQuery)
	for {
		n, from, err := u.ReadFromUDPAddrPort(buf)
		if s.ctx.Err() != nil {
			return
		}
		who := from.Addr().Unmap()
		if err != nil || !s.allowed(who) {
			continue
		}
		out, q, v := s.answer(buf[:n], who, false)
		switch v {
		case reply:
			s.answered.Add(1)
			u.WriteToUDPAddrPort(out, from) // who does not get it asks again
		case forward:
			if !s.queries.take(who) {
				s.dropped.Add(1)
				continue
			}
			msg := slices.Clone(buf[:n])
			s.running.Go(func() {
				defer s.queries.give(who)
				if out := s.ask(msg, &q, false); out != nil {
					u.WriteToUDPAddrPort(out, from)
				}
			})
		}
	}
}

// ask has the resolvers of the host answer.
func (s *Server) ask(msg []byte, q *query, tcp bool) []byte {
	out, err := s.relay(msg, q, tcp)
	if err == nil {
		s.forwarded.Add(1)
		return out
	}
	s.failed.Add(1)
	return q.build(dnsmessage.RCodeServerFailure, false, nil, tcp)
}

// quota bounds what is under way, in all and for each address, of which each may have a few.
type quota struct {
	most, each int

	mu  sync.Mutex
	all int                // guarded by mu
	of  map[netip.Addr]int // guarded by mu
}

func newQuota(most, each int) *quota {
	return &quota{most: most, each: each, of: map[netip.Addr]int{}}
}

func (q *quota) take(a netip.Addr) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of[a] >= q.each || q.all >= q.most && q.of[a] >= few {
		return false
	}
	q.all++
	q.of[a]++
	return true
}

func (q *quota) give(a netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all--
	if q.of[a]--; q.of[a] == 0 {
		delete(q.of, a)
	}
}
