package eyeballs

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/race"
	"github.com/weirnet/weir/eyeballs/rfc6724"
	"github.com/weirnet/weir/eyeballs/svcb"
)

// run is one dial: it carries out what a race.Machine commands. Its fields belong
// to the goroutine of the dial; attempts and lookups report through a channel.
type run struct {
	d       *Dialer
	ctx     context.Context // ends attempts and lookups; cancelled when the dial is over
	cancel  context.CancelFunc
	network string
	address string
	host    string
	begin   time.Time

	net      *network
	useful   race.Types // questions worth asking of a server on this host
	place    place
	known    bool // place holds something
	resolver *dns.Resolver
	plain    net.Dialer
	tls      *tls.Config

	machine  *race.Machine
	reports  chan report
	busy     int // goroutines that have not reported their end
	timer    *time.Timer
	todo     []race.Event // events that came about without a goroutine
	attempts []attempt
	lookups  []Lookup
	answered race.Types // about the name itself
	asked    race.Types
	keys     []sortable
	winner   int
	over     bool
	cause    error // why the dial was ended from outside
}

// attempt is a connection on its way. A report fills in its end.
type attempt struct {
	addr      netip.AddrPort
	stage     Stage
	start     time.Duration
	connected time.Duration // when the connection was up, 0 before
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

// report is what a goroutine of the dial has to say.
type report struct {
	kind   reportKind
	id     int
	at     time.Duration
	conn   net.Conn
	err    error
	answer dns.Answer
}

func newRun(d *Dialer, ctx context.Context, network, address, host string, port uint16) *run {
	r := &run{d: d, network: network, address: address, host: host, begin: time.Now(),
		net: current(), resolver: d.resolver(), winner: -1}
	// A report never blocks for long: the dial takes them in until all have ended.
	r.reports = make(chan report, 4)
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.plain = d.plain()
	r.place, r.known = d.history().recall(r.net.id, address)
	cfg := race.Config{Name: host, Port: port, Sort: r.sort, Shuffle: shuffle}
	r.chooseTypes(&cfg)
	if r.known {
		cfg.Delay = r.place.attemptDelay
		// Do not wait for a family that did not answer the last time.
		if now := r.begin; r.place.familyDead(false, now) && !r.place.familyDead(true, now) {
			cfg.PreferV4 = true
		}
	}
	if d.HTTPS {
		cfg.Types |= race.HTTPS
		r.useful |= race.HTTPS
		cfg.Protocols = []string{"h2", svcb.DefaultProtocol}
		if d.TLS != nil && len(d.TLS.NextProtos) > 0 {
			cfg.Protocols = d.TLS.NextProtos
		}
		if port != 443 {
			cfg.ServiceName = "_" + strconv.Itoa(int(port)) + "._https." + host
		}
	}
	if d.TLS != nil {
		r.tls = d.tlsFor(host)
	}
	if end, ok := ctx.Deadline(); ok {
		cfg.Limit = max(end.Sub(r.begin), 1)
	}
	r.machine = race.New(cfg)
	return r
}

// chooseTypes decides which questions make sense on this host (HEv3 section 4.1).
// The hosts file is always heard about both families: it knows loopback names.
func (r *run) chooseTypes(cfg *race.Config) {
	wanted := race.A | race.AAAA
	local, bound := localAddr(r.d.LocalAddr)
	switch {
	case r.network == "tcp4", r.network == "udp4", bound && local.Is4():
		wanted = race.A
	case r.network == "tcp6", r.network == "udp6", bound:
		wanted = race.AAAA
	}
	r.useful = wanted
	if wanted == race.A|race.AAAA && r.net.v4 != r.net.v6 {
		if r.useful = race.AAAA; r.net.v4 {
			r.useful = race.A
		}
	}
	cfg.Types = wanted
	cfg.PreferV4 = wanted == race.A || wanted != race.AAAA && r.net.preferV4()
	if r.d.NAT64.IsValid() {
		cfg.Prefixes = []netip.Prefix{r.d.NAT64}
	}
	if wanted&race.AAAA == 0 || r.net.v4 || !r.net.v6 || r.resolver.Static(r.host) {
		return
	}
	// A host without IPv4 reaches it through a NAT64, or not at all.
	cfg.NoV4, cfg.PreferV4 = true, false
	if len(cfg.Prefixes) > 0 {
		r.useful |= race.A & wanted
		return
	}
	if wanted&race.A != 0 {
		cfg.Types = race.AAAA | race.Prefix64
		r.useful = cfg.Types | race.A // A only once a prefix is known
	}
}

func localAddr(a net.Addr) (netip.Addr, bool) {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return ap.Addr().Unmap(), ap.IsValid() && !ap.Addr().IsUnspecified()
}

func shuffle(rs []svcb.Record) {
	rand.Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
}

func (r *run) now() time.Duration { return time.Since(r.begin) }

// run plays the race to its end and returns the winning connection. All that it
// started has ended by then.
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
			r.take(rep)
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
		r.take(<-r.reports)
	}
	if r.winner < 0 {
		return nil, r.lost(took)
	}
	r.remember()
	return r.attempts[r.winner].conn, nil
}

// step gives the machine an event, carries out what it commands, and goes on with
// the events that this caused at once.
func (r *run) step(ev race.Event) {
	r.todo = append(r.todo[:0], ev)
	for i := 0; i < len(r.todo); i++ {
		ev := r.todo[i]
		// Carrying out a command never calls the machine, so its slice stays valid.
		for _, c := range r.machine.Step(r.now(), ev) {
			r.obey(c)
		}
	}
}

func (r *run) obey(c race.Command) {
	switch c.Kind {
	case race.Ask:
		r.ask(c.Name, c.Types)
	case race.Connect:
		r.connect(c.ID, c.Endpoint)
	case race.Cancel:
		a := &r.attempts[c.ID]
		a.end = r.now()
		r.trace(Event{Kind: Cancelled, Attempt: c.ID, Addr: a.addr})
	case race.Wake:
		wait := max(c.At-r.now(), 0)
		if r.timer == nil {
			r.timer = time.NewTimer(wait)
		} else {
			r.timer.Reset(wait)
		}
	case race.Win:
		r.winner, r.over = c.ID, true
		r.trace(Event{Kind: Won, Attempt: c.ID, Addr: r.attempts[c.ID].addr})
	case race.Lose:
		r.over = true
		r.trace(Event{Kind: Lost})
	}
}

// ask answers what the hosts file and the cache know at once, turns useless
// questions away, and leaves the rest to a goroutine.
func (r *run) ask(name string, types race.Types) {
	r.trace(Event{Kind: Asking, Name: name, Types: types})
	if name == r.host {
		r.asked |= types
	}
	queue := func(a dns.Answer) { r.todo = append(r.todo, r.heard(a)) }
	left := r.resolver.Local(name, types, queue)
	for t := race.Types(1); t <= race.Prefix64; t <<= 1 {
		if left&t&^r.useful != 0 {
			left &^= t
			queue(dns.Answer{Answer: race.Answer{Name: name, Type: t}, From: "host", Err: errUseless})
		}
	}
	if left == 0 {
		return
	}
	r.busy++
	go func() {
		r.resolver.Ask(r.ctx, name, left, func(a dns.Answer) {
			r.reports <- report{kind: reportAnswer, answer: a}
		})
		r.reports <- report{kind: reportLookupEnd}
	}()
}

// errUseless explains why a question was not asked.
var errUseless = errors.New("not asked: this host has no address of the family")

// heard files an answer and makes it an event.
func (r *run) heard(a dns.Answer) race.Event {
	r.trace(Event{Kind: Answered, Name: a.Name, Types: a.Type, Addrs: a.Addrs, Services: a.Services,
		Prefixes: a.Prefixes, From: a.From, Err: a.Err})
	if a.Name == r.host {
		r.answered |= a.Type
	}
	if a.Err != nil && a.Type&(race.A|race.AAAA) != 0 {
		r.lookups = append(r.lookups, Lookup{Name: a.Name, Type: a.Type, At: r.now(), Err: a.Err})
	}
	return race.Event{Kind: race.Answered, Answer: a.Answer}
}

// connect begins an attempt.
func (r *run) connect(id int, ep race.Endpoint) {
	r.attempts = append(r.attempts, attempt{addr: ep.Addr, start: r.now()})
	r.trace(Event{Kind: Connecting, Attempt: id, Addr: ep.Addr})
	r.busy++
	go r.attempt(id, ep.Addr)
}

// attempt runs one attempt to its end, in a goroutine of its own.
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

// connOrNil keeps a nil *net.TCPConn from becoming a net.Conn that is not nil.
func connOrNil(c *net.TCPConn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// take takes a report in, during the race and after it.
func (r *run) take(rep report) {
	var a *attempt
	if rep.kind >= reportConnected {
		a = &r.attempts[rep.id]
	}
	switch rep.kind {
	case reportAnswer:
		if !r.over {
			r.step(r.heard(rep.answer))
		}
	case reportLookupEnd:
		r.busy--
	case reportConnected:
		a.stage, a.connected = StageHandshake, rep.at
		if !r.over {
			r.trace(Event{Kind: Connected, Attempt: rep.id, Addr: a.addr})
			r.step(race.Event{Kind: race.Connected, ID: rep.id})
		}
	case reportFinished:
		r.busy--
		if a.connected == 0 {
			a.connected = rep.at
		}
		if r.over { // too late: the race was won by another or given up
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
		if err := r.ctx.Err(); err != nil { // it failed because the time is up
			r.cause = err
			r.step(race.Event{Kind: race.Abort})
			return
		}
		a.err, a.ended, a.end = rep.err, true, rep.at
		r.trace(Event{Kind: Failed, Attempt: rep.id, Addr: a.addr, Err: rep.err})
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

// sortable is an endpoint with its key.
type sortable struct {
	ep  race.Endpoint
	key rfc6724.Key
}

// sort puts endpoints in the order of RFC 6724, with what is remembered.
func (r *run) sort(eps []race.Endpoint) {
	r.keys = r.keys[:0]
	for _, ep := range eps {
		c := rfc6724.Candidate{Dst: ep.Known, Src: r.net.source(ep.Addr.Addr())}
		c.Deprecated = r.net.deprecated[c.Src]
		if r.known {
			c.Unusable = r.place.avoid(ep.Addr.Addr(), r.begin)
			c.History = r.place.rank(ep.Addr.Addr())
		}
		r.keys = append(r.keys, sortable{ep, rfc6724.KeyOf(c)})
	}
	slices.SortStableFunc(r.keys, func(a, b sortable) int { return a.key.Compare(&b.key) })
	for i := range r.keys {
		eps[i] = r.keys[i].ep
	}
}

// remember tells the history what a won race taught. An address is dead if it
// still kept silent when the race was over although it had its chance, or failed
// only after a wait.
func (r *run) remember() {
	won := &r.attempts[r.winner]
	outcomes := make([]outcome, 0, len(r.attempts))
	for i := range r.attempts {
		a := &r.attempts[i]
		o := outcome{addr: a.addr.Addr(), won: i == r.winner}
		if a.connected > 0 {
			o.rtt = a.connected - a.start
		}
		o.dead = !o.won && a.end-a.start >= race.MinAttemptDelay && i < r.winner
		outcomes = append(outcomes, o)
	}
	silent := func(t race.Types) bool { return r.asked&t != 0 && r.answered&t == 0 }
	v4 := won.addr.Addr().Is4()
	r.d.history().record(r.net.id, r.address, outcomes, silent(race.A) && !v4, silent(race.AAAA) && v4, r.begin)
}

// lost makes the error of a race that was not won.
func (r *run) lost(took time.Duration) *Error {
	e := &Error{Network: r.network, Address: r.address, Elapsed: took, Cause: r.cause, Lookups: r.lookups}
	for i := range r.attempts {
		a := &r.attempts[i]
		end, err := a.end, a.err
		if !a.ended {
			end, err = took, errNoAnswer
		}
		e.Attempts = append(e.Attempts, Attempt{Addr: a.addr, Stage: a.stage, Start: a.start, Duration: end - a.start, Err: err})
	}
	// Questions that nobody has answered explain a wait.
	for t := race.A; t <= race.AAAA; t <<= 1 {
		if r.asked&t != 0 && r.answered&t == 0 {
			e.Lookups = append(e.Lookups, Lookup{Name: r.host, Type: t, At: took, Err: errNoAnswer})
		}
	}
	return e
}
