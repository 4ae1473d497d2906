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
	t      race.Types
	wire   dnsmessage.Type
	failed []bool // by server: it failed for good
	tcp    []bool // by server: it has been asked over TCP
	err    error  // the last such failure
	folded bool   // an answer came in other letters: it is asked for over TCP
	done   bool
}

type server struct {
	addr    netip.AddrPort
	conns   []net.Conn // one for each transmission, or one per query with Config.Reopen
	plain   bool       // does not understand EDNS(0)
	dead    bool       // could not be reached
	bogus   int        // packets that answered no question
	guessed bool       // maxBogus of them: it is asked over TCP alone
	folds   bool       // changes the case of names, and TCP did not work: any case will do
}

// maxBogus is how many wrong answers one server's address may send before somebody is taken to
// guess: from then on only TCP is believed, which cannot be spoofed from beside the path (RFC 5452
// section 9).
const maxBogus = 10

// ask is a question as one transmission sent it: with an id and letters of its own.
type ask struct {
	query   int
	id      uint16
	name    dnsmessage.Name
	anyCase bool
}

// packet is what a reader found: a reply, or the end of a server.
type packet struct {
	server int
	query  int
	reply  reply
	err    error
	tcp    bool
	folded bool // right but for the case of the name
	bogus  bool // it answers no question
}

// fly runs a flight. Everything it starts has ended when it returns.
func (r *Resolver) fly(ctx context.Context, config *Config, wire dnsmessage.Name, full string,
	types race.Types, answer func(Answer)) {
	f := &flight{r: r, config: config, name: wire, full: full, answer: answer,
		packets: make(chan packet, 4), done: make(chan struct{})}
	f.queries = make([]query, 0, 3)
	for _, t := range order {
		if types&t != 0 {
			f.queries = append(f.queries, query{t: t, wire: wireType(t)})
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

// send asks a server all open questions: over TCP if it has to be, else by datagrams from a port,
// with ids and with letters that no other transmission has.
func (f *flight) send(i int) {
	s := &f.servers[i]
	if s.dead {
		return
	}
	var asks []ask
	id := uint16(rand.Uint32())
	for q := range f.queries {
		if f.queries[q].done || f.queries[q].failedAt(i) {
			continue
		}
		if f.config.TCP || s.guessed {
			f.overTCP(i, q)
			continue
		}
		name := f.name
		if !s.folds {
			mixCase(&name)
		}
		asks = append(asks, ask{query: q, id: id, name: name, anyCase: s.folds})
		id += uint16(1 + rand.Uint32N(0x3fff))
	}
	if !f.config.Reopen {
		f.sendFrom(i, asks)
		return
	}
	for k := range asks {
		f.sendFrom(i, asks[k:k+1])
	}
}

// sendFrom sends questions from a new socket and begins to read from it.
func (f *flight) sendFrom(i int, asks []ask) {
	s := &f.servers[i]
	if len(asks) == 0 || s.dead {
		return
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.addr))
	if err != nil {
		f.lost(i, err)
		return
	}
	s.conns = append(s.conns, c)
	f.readers.Add(1)
	go f.read(i, c, asks)
	var buf [512]byte
	for _, a := range asks {
		msg, err := pack(buf[:0], a.id, a.name, f.queries[a.query].wire, !s.plain, f.config.TrustAD)
		if err != nil {
			f.finish(a.query, Answer{Err: fmt.Errorf("dns: cannot ask: %w", err)})
			continue
		}
		if _, err := c.Write(msg); err != nil { // a refusal of an earlier packet, or no route
			f.lost(i, err)
			return
		}
	}
}

// mixCase gives the letters of a name random cases. A server copies them into its answer, a guesser
// has to guess them (draft-vixie-dnsext-dns0x20).
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

// read hands every packet from c over until c is closed or refused.
func (f *flight) read(i int, c net.Conn, asks []ask) {
	defer f.readers.Done()
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			f.hand(packet{server: i, query: -1, err: err})
			return
		}
		if !f.hand(f.match(i, buf[:n], asks)) {
			return
		}
	}
}

// match finds the question that a packet answers.
func (f *flight) match(i int, msg []byte, asks []ask) packet {
	for _, a := range asks { // wire does not change
		reply, err := parse(msg, a.id, a.name, f.queries[a.query].wire)
		if err == nil {
			return packet{server: i, query: a.query, reply: reply}
		}
		if err == errCase && a.anyCase {
			if reply, err = parseFolded(msg, a.id, a.name, f.queries[a.query].wire); err == nil {
				return packet{server: i, query: a.query, reply: reply}
			}
		}
		if err == errCase {
			return packet{server: i, query: a.query, folded: true}
		}
	}
	return packet{server: i, query: -1, bogus: true}
}

func (f *flight) hand(p packet) bool {
	select {
	case f.packets <- p:
		return true
	case <-f.done:
		return false
	}
}
