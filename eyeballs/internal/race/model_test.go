package race

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/internal/testrand"
)

// network is a random one: the result of each question and each attempt, and when it comes. It
// is drawn before the race, so that the machine and the model see the same.
type network struct {
	v6, v4         []netip.Addr
	at6, at4       time.Duration // when the answers come; never if they are lost
	connect        map[netip.Addr]time.Duration
	finish         map[netip.Addr]time.Duration // after connect; never = stalls
	refuse         map[netip.Addr]bool
	giveUp         time.Duration
	first, running int
	preferV4, tick bool
}

func drawNetwork(r *rand.Rand) *network {
	w := &network{connect: map[netip.Addr]time.Duration{}, finish: map[netip.Addr]time.Duration{},
		refuse: map[netip.Addr]bool{}}
	delay := func(max int) time.Duration {
		if r.IntN(5) == 0 {
			return never
		}
		return time.Duration(1+r.IntN(max)) * ms
	}
	w.at6, w.at4 = delay(150), delay(150)
	for i := range r.IntN(5) {
		w.v6 = append(w.v6, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(i + 1)}))
	}
	for i := range r.IntN(5) {
		w.v4 = append(w.v4, netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}))
	}
	for _, a := range slices.Concat(w.v6, w.v4) {
		w.connect[a], w.finish[a], w.refuse[a] = delay(600), delay(300), r.IntN(3) == 0
	}
	w.giveUp = time.Duration(1500+r.IntN(3000)) * ms
	w.first = 1 + r.IntN(2)
	w.preferV4, w.tick = r.IntN(4) == 0, r.IntN(2) == 0
	w.running = 1 + r.IntN(9)
	return w
}

// modelRun runs the machine in a network, and checks the contract on the way.
type modelRun struct {
	t       *testing.T
	w       *network
	m       *Machine
	log     []string // attempts and the end
	live    map[int]*running
	wake    time.Duration
	winners int
	over    bool
}

// running is an attempt, and when it connects and finishes.
type running struct {
	ep                  netip.Addr
	connectAt, finishAt time.Duration
}

// play runs the machine in the network, millisecond by millisecond, and returns the log of its
// attempts and its end.
func play(t *testing.T, w *network) []string {
	p := &modelRun{t: t, w: w, live: map[int]*running{}, wake: never,
		m: New(Config{Name: "x", Port: 1, Types: dns.AAAA | dns.A, PreferV4: w.preferV4,
			FirstFamilyCount: w.first, MaxRunning: w.running})}
	p.step(0, Event{Kind: Begin})
	for now := time.Duration(0); !p.over; now += ms {
		if now == w.giveUp {
			p.step(now, Event{Kind: Abort})
			break
		}
		p.happen(now)
		if !p.over && (now == p.wake || w.tick) { // superfluous ticks must not matter
			p.step(now, Event{Kind: Tick})
		}
	}
	if !p.over || p.winners > 1 || len(p.live) != 0 {
		t.Fatalf("over=%v winners=%d still running=%d", p.over, p.winners, len(p.live))
	}
	return p.log
}

// happen gives the machine the events of one millisecond.
func (p *modelRun) happen(now time.Duration) {
	if now == p.w.at6 {
		p.step(now, Event{Kind: Answered,
			Answer: dns.Answer{Name: "x", Type: dns.AAAA, Addrs: p.w.v6}})
	}
	if now == p.w.at4 && !p.over {
		p.step(now, Event{Kind: Answered,
			Answer: dns.Answer{Name: "x", Type: dns.A, Addrs: p.w.v4}})
	}
	for id := 0; id < 10 && !p.over; id++ {
		r := p.live[id]
		switch {
		case r == nil:
		case now == r.connectAt && p.w.refuse[r.ep]:
			delete(p.live, id)
			p.step(now, Event{Kind: Failed, ID: id})
		case now == r.connectAt:
			p.step(now, Event{Kind: Connected, ID: id})
		}
		if r := p.live[id]; r != nil && now == r.finishAt && !p.over {
			p.step(now, Event{Kind: Finished, ID: id})
		}
	}
}

// step gives the machine an event and executes its commands.
func (p *modelRun) step(now time.Duration, ev Event) {
	for _, c := range slices.Clone(p.m.Step(now, ev)) {
		if p.over {
			p.t.Fatalf("command %v after the end", c)
		}
		switch c.Kind {
		case Connect:
			a := c.Endpoint.Addr.Addr()
			at := plus(now, p.w.connect[a])
			p.live[c.ID] = &running{a, at, plus(at, p.w.finish[a])}
			p.log = append(p.log, fmt.Sprintf("%d %s", now/ms, a))
		case Cancel:
			if p.live[c.ID] == nil {
				p.t.Fatalf("cancel of %d, which is not running", c.ID)
			}
			delete(p.live, c.ID)
		case Wake:
			if c.At <= now {
				p.t.Fatalf("wake at %v, which is not after %v", c.At, now)
			}
			p.wake = c.At
		case Win:
			if p.live[c.ID] == nil {
				p.t.Fatalf("winner %d is not running", c.ID)
			}
			p.log = append(p.log, fmt.Sprintf("%d win %s", now/ms, p.live[c.ID].ep))
			delete(p.live, c.ID)
			p.winners, p.over = p.winners+1, true
		case Lose:
			p.log = append(p.log, fmt.Sprintf("%d lose", now/ms))
			p.over = true
		}
	}
}

func plus(a, b time.Duration) time.Duration {
	if a == never || b == never {
		return never
	}
	return a + b
}

// model is the reference model of a race, slow and obviously right: at every millisecond it derives
// what must happen from the whole past and from nothing else. It returns nil for a race in which
// the order inside one millisecond would matter.
func model(w *network) []string {
	type try struct {
		addr           netip.Addr
		start, connect time.Duration
		finish         time.Duration
	}
	var tries []try
	var log []string
	for now := time.Duration(0); ; now += ms {
		if now == w.giveUp {
			return append(log, fmt.Sprintf("%d lose", now/ms))
		}
		// answers that come in the same millisecond come one after the other
		for moment := 0; moment < 2; moment++ {
			have6, have4 := w.at6 <= now, w.at4 < now || w.at4 == now && moment == 1
			var six, four []netip.Addr
			if have6 {
				six = w.v6
			}
			if have4 {
				four = w.v4
			}
			list := alternate(six, four, w.first)
			next := slices.IndexFunc(list, func(a netip.Addr) bool {
				return !slices.ContainsFunc(tries, func(t try) bool { return t.addr == a })
			})
			known := never // since when an address is known
			if len(w.v6) > 0 {
				known = min(known, w.at6)
			}
			if len(w.v4) > 0 {
				known = min(known, w.at4)
			}
			ready := have6 && !w.preferV4 || have4 && w.preferV4 ||
				known != never && now >= known+ResolutionDelay || len(tries) > 0
			// The newest attempt, or its connection, or a failure since, sets the pace.
			pace := time.Duration(0)
			running := 0
			type mark struct{ at, next time.Duration }
			var marks []mark
			for _, t := range tries {
				marks = append(marks, mark{t.start, t.start + AttemptDelay})
				if t.connect <= now && !w.refuse[t.addr] {
					marks = append(marks, mark{t.connect, t.connect + AttemptDelay})
				}
			}
			for _, t := range tries {
				if w.refuse[t.addr] && t.connect <= now {
					marks = append(marks, mark{t.connect, t.connect})
				} else {
					running++
				}
			}
			for _, m := range marks {
				pace = max(pace, m.next)
			}
			// A failure ends every wait that was set before it.
			for i, t := range tries {
				tie := slices.ContainsFunc(tries[:i], func(u try) bool {
					return u.connect == t.connect || u.finish == t.connect
				})
				if t.connect == now && (tie || now == w.at6 || now == w.at4) {
					return nil
				}
				if w.refuse[t.addr] && t.connect <= now {
					lifted := t.connect
					for _, m := range marks {
						if m.at >= t.connect {
							lifted = max(lifted, m.next)
						}
					}
					pace = min(pace, lifted)
				}
			}
			if moment == 1 {
				for _, t := range tries {
					if t.finish == now && !w.refuse[t.addr] {
						return append(log, fmt.Sprintf("%d win %s", now/ms, t.addr))
					}
				}
			}
			if next >= 0 && ready && now >= pace && running < w.running {
				if slices.ContainsFunc(tries, func(t try) bool { return t.finish == now }) {
					return nil
				}
				a := list[next]
				at := plus(now, w.connect[a])
				tries = append(tries, try{a, now, at, plus(at, w.finish[a])})
				log = append(log, fmt.Sprintf("%d %s", now/ms, a))
				moment--
				continue
			}
			if next < 0 && running == 0 && have6 && have4 {
				return append(log, fmt.Sprintf("%d lose", now/ms))
			}
		}
	}
}

func alternate(six, four []netip.Addr, first int) []netip.Addr {
	lead, rest := six, four
	if len(six) == 0 {
		lead, rest = four, six
	}
	n := min(first, len(lead))
	list := slices.Clone(lead[:n])
	lead = lead[n:]
	for len(lead)+len(rest) > 0 {
		if len(rest) > 0 {
			list, rest = append(list, rest[0]), rest[1:]
		}
		if len(lead) > 0 {
			list, lead = append(list, lead[0]), lead[1:]
		}
	}
	return list
}

// checkSpacing checks a log against RFC 8305 section 5 without a model. Two attempts are closer
// than the delay only if one failed in between, and no address is tried twice.
func checkSpacing(t *testing.T, w *network, log []string) {
	seen := map[string]bool{}
	last := -time.Hour
	var ends []time.Duration
	for _, line := range log {
		var at int
		var what string
		if n, _ := fmt.Sscanf(line, "%d %s", &at, &what); n != 2 || what == "win" ||
			what == "lose" {
			continue
		}
		now := time.Duration(at) * ms
		if seen[what] {
			t.Fatalf("%s tried twice", what)
		}
		seen[what] = true
		failed := slices.ContainsFunc(ends, func(e time.Duration) bool {
			return e >= last && e <= now
		})
		if now-last < AttemptDelay && !failed {
			t.Fatalf("attempt at %v, %v after the last one, with no failure between", now, now-last)
		}
		last = now
		if a := netip.MustParseAddr(what); w.refuse[a] {
			ends = append(ends, plus(now, w.connect[a]))
		}
	}
}

// TestModel compares random races with the reference model.
func TestModel(t *testing.T) { compareWithModel(t, 500) }

// TestLongModel compares more races.
func TestLongModel(t *testing.T) { compareWithModel(t, 1500) }

func compareWithModel(t *testing.T, races int) {
	t.Helper()
	seed, skipped := testrand.Seed(t), 0
	for i := range races {
		w := drawNetwork(rand.New(rand.NewPCG(seed, uint64(i))))
		got := play(t, w)
		checkSpacing(t, w, got)
		want := model(w)
		if want == nil {
			skipped++
			continue
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d race %d: %+v\n got %q\nwant %q", seed, i, *w, got, want)
		}
	}
	if skipped > races/10 {
		t.Errorf("%d of %d races were not compared", skipped, races)
	}
}

// TestChaos sends events in any order, even in orders that no runner produces, and checks what must
// always hold.
func TestChaos(t *testing.T) {
	seed := testrand.Seed(t)
	for i := range 5000 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		m := New(Config{Name: "x", Port: 1, Types: dns.Type(r.IntN(16)), NoV4: r.IntN(3) == 0,
			Limit: time.Duration(r.IntN(2000)) * ms})
		live, ids := map[int]bool{}, 0
		last := -time.Hour
		over, failed := false, false
		now := time.Duration(0)
		step := func(ev Event) {
			failed = failed || ev.Kind == Failed
			for _, c := range m.Step(now, ev) {
				if over {
					t.Fatalf("seed %d race %d: command after the end", seed, i)
				}
				switch c.Kind {
				case Connect:
					if now-last < MinAttemptDelay && !failed {
						t.Fatalf("seed %d race %d: attempt after %v", seed, i, now-last)
					}
					live[c.ID], ids, last, failed = true, ids+1, now, false
				case Cancel:
					delete(live, c.ID)
				case Win:
					delete(live, c.ID)
					over = true
				case Lose:
					over = true
				}
			}
		}
		step(Event{Kind: Begin})
		for range 60 {
			now += time.Duration(r.IntN(40)) * ms
			ev := Event{Kind: EventKind(r.IntN(6)), ID: r.IntN(8) - 1}
			if ev.Kind == Finished && !live[ev.ID] && !over {
				ev.Kind = Tick
			}
			if ev.Kind == Failed {
				delete(live, ev.ID)
			}
			if ev.Kind == Answered {
				ev.Answer = dns.Answer{Name: "x", Type: 1 << r.IntN(4), NoName: r.IntN(9) == 0}
				for range r.IntN(4) {
					ev.Answer.Addrs = append(ev.Answer.Addrs,
						netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(5))}))
				}
				if r.IntN(2) == 0 {
					ev.Answer.Prefixes = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")}
				}
			}
			step(ev)
		}
		step(Event{Kind: Abort})
		if !over || len(live) != 0 {
			t.Fatalf("seed %d race %d: over=%v, %d attempts leaked", seed, i, over, len(live))
		}
	}
}
