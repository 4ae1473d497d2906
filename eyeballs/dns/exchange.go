package dns

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// The timing of an exchange.
const (
	// ServerDelay is how long one server has before the questions are sent to the next one too.
	ServerDelay = 300 * time.Millisecond
	// Resend is when open questions are sent again for the first time. The wait doubles from then
	// on.
	Resend = time.Second
)

// exchange sends several questions about one name until all are answered. Its fields belong to the
// goroutine that runs it.
type exchange struct {
	r         *Resolver
	config    *Config
	name      dnsmessage.Name
	full      string
	questions []question
	open      int
	answer    func(Answer)

	servers       []server
	transmissions int // transmissions so far
	packets       chan packet
	readers       sync.WaitGroup
	done          chan struct{} // closed at the end, so that readers never block
}

// question is one question of an exchange.
type question struct {
	t      Type
	wire   dnsmessage.Type
	failed []bool // by server: it failed for good
	tcp    []bool // by server: it was sent over TCP
	err    error  // the last such failure
	folded bool   // an answer came with other letter cases: it is sent over TCP
	done   bool
}

// on returns the question about a name in the form of a message.
func (q *question) on(name dnsmessage.Name) dnsmessage.Question {
	return dnsmessage.Question{Name: name, Type: q.wire, Class: dnsmessage.ClassINET}
}

// server is one server of an exchange.
type server struct {
	addr      netip.AddrPort
	conns     []net.Conn // one for each transmission, or for each question with Config.Reopen
	noEDNS    bool       // does not understand EDNS(0)
	down      bool       // could not be reached
	bogus     int        // packets that answer none of the questions
	tcpOnly   bool       // maxBogus reached: it is used over TCP only
	foldsCase bool       // it changes the case of names and TCP failed: any case is accepted
}

// maxBogus is how many wrong answers may come from the address of one server. More count as an
// attempt to guess an answer. From then on only TCP counts, which an off-path attacker cannot spoof
// (RFC 5452 section 9).
const maxBogus = 10

// sentQuestion is a question as one transmission sends it: with its own id and letter cases.
type sentQuestion struct {
	question int // index in exchange.questions
	id       uint16
	name     dnsmessage.Name
	anyCase  bool
	edns     bool
}

// packet is what a reader received: a reply, or an error of the socket.
type packet struct {
	server   int
	question int // -1 if it answers none or is an error
	reply    reply
	err      error
	tcp      bool
	edns     bool // the query had EDNS(0)
	folded   bool // right except for the case of the name
	bogus    bool // it answers none of the questions
}

// exchange sends questions about a name that is valid in DNS. Everything that it starts has ended
// when it returns.
func (r *Resolver) exchange(ctx context.Context, config *Config, wire dnsmessage.Name, q query) {
	x := &exchange{r: r, config: config, name: wire, full: q.name, answer: q.answer,
		packets: make(chan packet, 4), done: make(chan struct{})}
	x.questions = make([]question, 0, 3)
	for _, t := range order {
		if q.types&t != 0 {
			x.questions = append(x.questions, question{t: t, wire: wireType(t)})
		}
	}
	x.open = len(x.questions)
	x.pickServers()
	defer x.close()
	x.run(ctx)
}

// pickServers orders the servers: the one that answered last comes first, or they rotate.
func (x *exchange) pickServers() {
	n := len(x.config.Servers)
	first := int(x.r.good.Load()) % n
	if x.config.Rotate {
		first = int(x.r.good.Add(1)) % n
	}
	x.servers = make([]server, n)
	for i := range x.servers {
		x.servers[i].addr = x.config.Servers[(first+i)%n]
	}
}

// close closes every socket and waits for the readers.
func (x *exchange) close() {
	close(x.done)
	for i := range x.servers {
		for _, c := range x.servers[i].conns {
			c.Close()
		}
	}
	x.readers.Wait()
}

// run sends and receives until all questions are answered, the time is up, or ctx ends.
func (x *exchange) run(ctx context.Context) {
	end := time.Now().Add(x.config.Timeout * time.Duration(x.config.Attempts))
	timer := time.NewTimer(x.transmit())
	defer timer.Stop()
	for x.open > 0 {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			left := time.Until(end)
			if left <= 0 {
				x.expire()
				return
			}
			x.r.stats.resent.Add(1)
			timer.Reset(min(x.transmit(), left))
		case p := <-x.packets:
			if x.handle(p) {
				timer.Reset(min(x.transmit(), max(time.Until(end), 0)))
			}
		}
	}
}

// transmit sends the open questions to the next server and returns how long to wait until the next
// transmission.
func (x *exchange) transmit() time.Duration {
	n := len(x.servers)
	i := x.transmissions % n
	round := x.transmissions / n
	x.transmissions++
	x.send(i)
	if x.transmissions%n != 0 {
		if round == 0 && !x.servers[i].down {
			return ServerDelay
		}
		return 0 // from the second round on, all servers at once
	}
	wait := cmp.Or(x.r.resend, Resend) << min(round, 4)
	if round == 0 {
		wait -= time.Duration(n-1) * ServerDelay // one second after the beginning
	}
	return max(wait, ServerDelay)
}
