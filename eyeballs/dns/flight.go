package dns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/race"
)

// The timetable of a flight.
const (
	// ServerDelay is how long one server has before the next one is asked too.
	ServerDelay = 300 * time.Millisecond
	// Resend is when open questions are sent again for the first time; the wait
	// doubles from then on.
	Resend = time.Second
)

// flight is the asking of several questions about one name until all are
// answered. Its fields belong to the goroutine that runs it.
type flight struct {
	r       *Resolver
	config  *Config
	name    dnsmessage.Name
	full    string
	queries []query
	open    int
	answer  func(Answer)

	servers []server
	asked   int // transmissions so far
	packets chan packet
	readers sync.WaitGroup
	done    chan struct{} // closed at the end, so that readers never block
}

type query struct {
	id     uint16
	t      race.Types
	wire   dnsmessage.Type
	failed []bool // by server: it failed for good
	tcp    []bool // by server: it has been asked over TCP
	err    error  // the last such failure
	done   bool
}

type server struct {
	addr  netip.AddrPort
	conns []net.Conn // one, or one per query with Config.Reopen
	plain bool       // does not understand EDNS(0)
	dead  bool       // could not be reached
}

// packet is what a reader found: a reply, or the end of a server.
type packet struct {
	server int
	query  int
	reply  reply
	err    error
	tcp    bool
}

// fly runs a flight. Everything it starts has ended when it returns.
func (r *Resolver) fly(ctx context.Context, config *Config, wire dnsmessage.Name, full string, types race.Types, answer func(Answer)) {
	f := &flight{r: r, config: config, name: wire, full: full, answer: answer,
		packets: make(chan packet, 4), done: make(chan struct{})}
	f.queries = make([]query, 0, 3)
	id := uint16(rand.Uint32())
	for _, t := range order {
		if types&t != 0 {
			f.queries = append(f.queries, query{id: id, t: t, wire: wireType(t)})
			id += uint16(1 + rand.Uint32N(0x3fff))
		}
	}
	f.open = len(f.queries)
	f.pickServers()
	defer f.land()
	f.run(ctx)
}

// pickServers begins with the server that answered last, or takes turns.
func (f *flight) pickServers() {
	n := len(f.config.Servers)
	first := int(f.r.good.Load()) % n
	if f.config.Rotate {
		first = int(f.r.good.Add(1)) % n
	}
	f.servers = make([]server, n)
	for i := range f.servers {
		f.servers[i].addr = f.config.Servers[(first+i)%n]
	}
}

// land closes every socket and waits for their readers.
func (f *flight) land() {
	close(f.done)
	for i := range f.servers {
		for _, c := range f.servers[i].conns {
			c.Close()
		}
	}
	f.readers.Wait()
}

func (f *flight) run(ctx context.Context) {
	end := time.Now().Add(f.config.Timeout * time.Duration(f.config.Attempts))
	timer := time.NewTimer(f.transmit())
	defer timer.Stop()
	for f.open > 0 {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			left := time.Until(end)
			if left <= 0 {
				f.expire()
				return
			}
			f.r.stats.resent.Add(1)
			timer.Reset(min(f.transmit(), left))
		case p := <-f.packets:
			if f.handle(p) {
				timer.Reset(min(f.transmit(), max(time.Until(end), 0)))
			}
		}
	}
}

// transmit sends the open questions to the next server and returns how long to
// wait until the next transmission.
func (f *flight) transmit() time.Duration {
	n := len(f.servers)
	i := f.asked % n
	round := f.asked / n
	f.asked++
	f.send(i)
	if f.asked%n != 0 {
		if round == 0 && !f.servers[i].dead {
			return ServerDelay
		}
		return 0 // from the second round on, all servers at once
	}
	wait := Resend << min(round, 4)
	if round == 0 {
		wait -= time.Duration(n-1) * ServerDelay // a second from the beginning
	}
	return max(wait, ServerDelay)
}

func (f *flight) send(i int) {
	s := &f.servers[i]
	if s.dead {
		return
	}
	var buf [512]byte
	for q := range f.queries {
		if f.queries[q].done || f.queries[q].failedAt(i) {
			continue
		}
		if f.config.TCP {
			f.overTCP(i, q)
			continue
		}
		msg, err := pack(buf[:0], f.queries[q].id, f.name, f.queries[q].wire, !s.plain, f.config.TrustAD)
		if err != nil {
			f.finish(q, Answer{Err: fmt.Errorf("dns: cannot ask: %w", err)})
			continue
		}
		c, err := f.conn(i, q)
		if err == nil {
			_, err = c.Write(msg)
		}
		if err != nil { // a refusal of an earlier packet, or no route
			f.lost(i, err)
			return
		}
	}
}

// conn returns the socket for a question to a server, and begins to read from it.
func (f *flight) conn(i, q int) (net.Conn, error) {
	s := &f.servers[i]
	slot := 0
	if f.config.Reopen {
		slot = q
	}
	for len(s.conns) <= slot {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.addr))
		if err != nil {
			return nil, err
		}
		s.conns = append(s.conns, c)
		f.readers.Add(1)
		go f.read(i, c)
	}
	return s.conns[slot], nil
}

// read hands every reply from c over until c is closed or refused.
func (f *flight) read(i int, c net.Conn) {
	defer f.readers.Done()
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			f.hand(packet{server: i, query: -1, err: err})
			return
		}
		p := packet{server: i, query: -1}
		for q := range f.queries { // id, name and wire do not change
			query := &f.queries[q]
			if p.reply, err = parse(buf[:n], query.id, f.name, query.wire); err == nil {
				p.query = q
				break
			}
		}
		if p.query < 0 {
			f.r.stats.bogus.Add(1)
			continue
		}
		if !f.hand(p) {
			return
		}
	}
}

func (f *flight) hand(p packet) bool {
	select {
	case f.packets <- p:
		return true
	case <-f.done:
		return false
	}
}
