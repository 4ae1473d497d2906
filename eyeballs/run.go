package eyeballs

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/internal/race"
)

// run is one dial: it executes the commands of a race.Machine. Its fields belong to the goroutine
// of the dial; attempts and lookups report through a channel.
type run struct {
	target
	d      *Dialer
	ctx    context.Context // ends attempts and lookups; cancelled when the dial is over
	cancel context.CancelFunc
	begin  time.Time

	view     *hostView
	useful   dns.Type // questions that this host sends to a server; others are not sent
	entry    hostEntry
	hasEntry bool // the history knows something about the target
	resolver *dns.Resolver
	plain    net.Dialer
	tls      *tls.Config

	machine  *race.Machine
	reports  chan report
	busy     int // goroutines that have not reported their end
	timer    *time.Timer
	pending  []race.Event // events that step has still to give to the machine
	attempts []attempt
	lookups  []Lookup
	queried  dns.Type // questions about the name itself
	answered dns.Type // the answered part of queried
	keys     []sortable
	winner   int
	over     bool
	cause    error // why the dial was ended from outside
}

// attempt is one attempt to connect. A report fills in its end.
type attempt struct {
	addr      netip.AddrPort
	stage     Stage
	start     time.Duration
	connected time.Duration // when the transport connection was up, 0 before
	end       time.Duration
	ended     bool
	conn      net.Conn
	err       error
}

type reportKind uint8

const (
	reportAnswer reportKind = iota
	reportLookupEnd
	reportConnected
	reportFinished
	reportFailed
)

// report is a message from a goroutine of the dial.
type report struct {
	kind   reportKind
	id     int
	at     time.Duration
	conn   net.Conn
	err    error
	answer dns.Answer
}

func (r *run) now() time.Duration { return time.Since(r.begin) }

// run runs the race to its end and returns the winning connection. Everything that it started has
// ended by then.
func (r *run) run() (net.Conn, *Error) {
	defer r.cancel()
	r.step(race.Event{Kind: race.Begin})
	for !r.over {
		var tick <-chan time.Time
		if r.timer != nil {
			tick = r.timer.C
		}
		select {
		case rep := <-r.reports:
			r.handle(rep)
		case <-tick:
			r.step(race.Event{Kind: race.Tick})
		case <-r.ctx.Done():
			r.cause = r.ctx.Err()
			r.step(race.Event{Kind: race.Abort})
		}
	}
	took := r.now()
	r.cancel()
	if r.timer != nil {
		r.timer.Stop()
	}
	for r.busy > 0 {
		r.handle(<-r.reports)
	}
	if r.winner < 0 {
		return nil, r.lost(took)
	}
	r.remember()
	return r.attempts[r.winner].conn, nil
}

// step gives the machine an event, executes its commands, and repeats that for the events that
// these cause at once.
func (r *run) step(ev race.Event) {
	r.pending = append(r.pending[:0], ev)
	for i := 0; i < len(r.pending); i++ {
		ev := r.pending[i]
		// Executing a command never calls the machine, so the slice of commands stays valid.
		for _, c := range r.machine.Step(r.now(), ev) {
			r.do(c)
		}
	}
}

// do executes one command of the machine.
func (r *run) do(c race.Command) {
	switch c.Kind {
	case race.Query:
		r.query(c.Name, c.Types)
	case race.Connect:
		r.connect(c.ID, c.Endpoint)
	case race.Cancel:
		a := &r.attempts[c.ID]
		a.end = r.now()
		r.trace(Event{Kind: EventCancelled, Attempt: c.ID, Addr: a.addr})
	case race.Wake:
		wait := max(c.At-r.now(), 0)
		if r.timer == nil {
			r.timer = time.NewTimer(wait)
		} else {
			r.timer.Reset(wait)
		}
	case race.Win:
		r.winner, r.over = c.ID, true
		r.trace(Event{Kind: EventWon, Attempt: c.ID, Addr: r.attempts[c.ID].addr})
	case race.Lose:
		r.over = true
		r.trace(Event{Kind: EventLost})
	}
}

// query answers at once what the hosts file and the cache know, refuses useless questions, and
// leaves the rest to a goroutine.
func (r *run) query(name string, types dns.Type) {
	r.trace(Event{Kind: EventAsking, Name: name, Types: types})
	if name == r.host {
		r.queried |= types
	}
	queue := func(a dns.Answer) { r.pending = append(r.pending, r.answerEvent(a)) }
	left := r.resolver.QueryLocal(name, types, queue)
	for t := dns.Type(1); t <= dns.Prefix64; t <<= 1 {
		if left&t&^r.useful != 0 {
			left &^= t
			queue(dns.Answer{Name: name, Type: t, From: "host", Err: errUseless})
		}
	}
	if left == 0 {
		return
	}
	r.busy++
	go func() {
		r.resolver.Query(r.ctx, name, left, func(a dns.Answer) {
			r.reports <- report{kind: reportAnswer, answer: a}
		})
		r.reports <- report{kind: reportLookupEnd}
	}()
}

// errUseless explains why a question was not sent.
var errUseless = errors.New("not sent: this host has no address of the family")

// answerEvent records an answer and makes it an event of the machine.
func (r *run) answerEvent(a dns.Answer) race.Event {
	r.trace(Event{Kind: EventAnswered, Name: a.Name, Types: a.Type, Addrs: a.Addrs,
		Services: a.Services,
		Prefixes: a.Prefixes, From: a.From, Err: a.Err})
	if a.Name == r.host {
		r.answered |= a.Type
	}
	if a.Err != nil && a.Type&(dns.A|dns.AAAA) != 0 {
		r.lookups = append(r.lookups, Lookup{Name: a.Name, Type: a.Type, At: r.now(), Err: a.Err})
	}
	return race.Event{Kind: race.Answered, Answer: a}
}

// connect begins an attempt.
func (r *run) connect(id int, ep race.Endpoint) {
	r.attempts = append(r.attempts, attempt{addr: ep.Addr, start: r.now()})
	r.trace(Event{Kind: EventConnecting, Attempt: id, Addr: ep.Addr})
	r.busy++
	go r.attempt(id, ep.Addr)
}

// attempt runs one attempt to its end. It has a goroutine of its own.
func (r *run) attempt(id int, addr netip.AddrPort) {
	conn, err := r.dialOne(addr)
	if err == nil && r.tls != nil {
		r.reports <- report{kind: reportConnected, id: id, at: r.now()}
		conn, err = handshake(r.ctx, conn, r.tls)
	}
	kind := reportFinished
	if err != nil {
		kind = reportFailed
	}
	r.reports <- report{kind: kind, id: id, at: r.now(), conn: conn, err: err}
}

func (r *run) dialOne(addr netip.AddrPort) (net.Conn, error) {
	switch l := r.d.LocalAddr.(type) {
	case nil:
		if r.network[0] == 't' {
			return connOrNil(r.plain.DialTCP(r.ctx, r.network, netip.AddrPort{}, addr))
		}
	case *net.TCPAddr:
		if r.network[0] == 't' {
			plain := r.plain
			plain.LocalAddr = nil
			return connOrNil(plain.DialTCP(r.ctx, r.network, l.AddrPort(), addr))
		}
	}
	return r.plain.DialContext(r.ctx, r.network, addr.String())
}

// connOrNil prevents a nil *net.TCPConn from becoming a non-nil net.Conn.
func connOrNil(c *net.TCPConn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// handle handles a report, during the race and after it.
func (r *run) handle(rep report) {
	var a *attempt
	if rep.kind >= reportConnected {
		a = &r.attempts[rep.id]
	}
	switch rep.kind {
	case reportAnswer:
		if !r.over {
			r.step(r.answerEvent(rep.answer))
		}
	case reportLookupEnd:
		r.busy--
	case reportConnected:
		a.stage, a.connected = StageHandshake, rep.at
		if !r.over {
			r.trace(Event{Kind: EventConnected, Attempt: rep.id, Addr: a.addr})
			r.step(race.Event{Kind: race.Connected, ID: rep.id})
		}
	case reportFinished:
		r.busy--
		if a.connected == 0 {
			a.connected = rep.at
		}
		if r.over { // too late: another attempt won, or the caller gave up
			rep.conn.Close()
			return
		}
		a.conn, a.ended, a.end = rep.conn, true, rep.at
		r.step(race.Event{Kind: race.Finished, ID: rep.id})
	case reportFailed:
		r.busy--
		if r.over {
			return
		}
		if err := r.ctx.Err(); err != nil { // it failed because the caller's time is up
			r.cause = err
			r.step(race.Event{Kind: race.Abort})
			return
		}
		a.err, a.ended, a.end = rep.err, true, rep.at
		r.trace(Event{Kind: EventFailed, Attempt: rep.id, Addr: a.addr, Err: rep.err})
		r.step(race.Event{Kind: race.Failed, ID: rep.id})
	}
}

func (r *run) trace(e Event) {
	if r.d.Trace == nil {
		return
	}
	e.At = r.now()
	r.d.Trace(e)
}
