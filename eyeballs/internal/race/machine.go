package race

import (
	"net/netip"
	"time"
)

// never is a time that is never reached.
const never = time.Duration(1<<63 - 1)

// Machine is one race. It is not safe for concurrent use.
type Machine struct {
	cfg   Config
	names []name // names[0] is the caller's
	// list holds all known endpoints in the order of trying. Every answer rebuilds it as a whole.
	list     []entry
	attempts []attempt
	running  int
	prefixes []netip.Prefix

	known    time.Duration // when the first address was known
	started  bool          // the race no longer waits for answers
	nextAt   time.Duration // when the next attempt may begin
	wakeAt   time.Duration // the last Wake
	begun    bool
	over     bool
	commands []Command
}

type entry struct {
	Endpoint
	tried bool
}

type attemptState uint8

const (
	connecting attemptState = iota
	connected
	ended
)

type attempt struct {
	addr  netip.AddrPort
	state attemptState
}

// New returns a race that has not begun.
func New(cfg Config) *Machine {
	if cfg.ResolutionDelay <= 0 {
		cfg.ResolutionDelay = ResolutionDelay
	}
	if cfg.AttemptDelay <= 0 {
		cfg.AttemptDelay = AttemptDelay
	}
	if cfg.FirstFamilyCount <= 0 {
		cfg.FirstFamilyCount = 1
	}
	if cfg.MaxRunning <= 0 {
		cfg.MaxRunning = MaxRunning
	}
	return &Machine{cfg: cfg, known: never, wakeAt: never, prefixes: cfg.Prefixes}
}

// Step handles one event at the time now and returns what to do. The slice is valid until the next
// call.
func (m *Machine) Step(now time.Duration, ev Event) []Command {
	m.commands = m.commands[:0]
	if m.over {
		return nil
	}
	switch ev.Kind {
	case Begin:
		m.begin()
	case Answered:
		if m.answer(ev.Answer) {
			m.rebuild()
		}
	case Connected:
		m.connected(now, ev.ID)
	case Finished:
		if m.live(ev.ID) {
			m.win(ev.ID)
			return m.commands
		}
	case Failed:
		if m.live(ev.ID) {
			m.attempts[ev.ID].state = ended
			m.running--
			m.nextAt = now // a failure starts the next attempt at once
		}
	case Abort:
		m.lose()
		return m.commands
	}
	if m.begun {
		m.advance(now)
	}
	return m.commands
}

func (m *Machine) begin() {
	if m.begun {
		return
	}
	m.begun = true
	m.query(m.cfg.Name, m.cfg.Types)
	if len(m.names) == 0 { // no useful question: names[0] must exist
		m.names = append(m.names, name{name: m.cfg.Name})
	}
}

func (m *Machine) live(id int) bool {
	return id >= 0 && id < len(m.attempts) && m.attempts[id].state != ended
}

// connected gives the handshake of an attempt as much time as its connection had: the next attempt
// waits for another delay (HEv3 section 6.1).
func (m *Machine) connected(now time.Duration, id int) {
	if !m.live(id) || m.attempts[id].state == connected {
		return
	}
	m.attempts[id].state = connected
	m.nextAt = max(m.nextAt, now+m.delay(now, m.attempts[id].addr.Addr()))
}

func (m *Machine) win(id int) {
	m.attempts[id].state = ended
	m.running--
	m.finish(Command{Kind: Win, ID: id})
}

func (m *Machine) lose() { m.finish(Command{Kind: Lose}) }

func (m *Machine) finish(last Command) {
	for id := range m.attempts {
		if m.attempts[id].state != ended {
			m.commands = append(m.commands, Command{Kind: Cancel, ID: id})
		}
	}
	m.over = true
	m.commands = append(m.commands, last)
}

// advance begins the next attempt if its time has come, and sets the next Wake.
func (m *Machine) advance(now time.Duration) {
	next := m.untried()
	if next >= 0 && m.known == never {
		m.known = now
	}
	if !m.started && next >= 0 && (m.settled() || now >= m.known+m.resolutionDelay()) {
		m.started = true
	}
	wake := never
	switch {
	case next >= 0 && !m.started:
		wake = m.known + m.resolutionDelay()
	case next >= 0 && m.running < m.cfg.MaxRunning: // else a failure starts the next
		if now >= m.nextAt {
			m.connect(now, next)
			next = m.untried()
		}
		if next >= 0 && m.running < m.cfg.MaxRunning {
			wake = m.nextAt
		}
	}
	if next < 0 && m.running == 0 && !m.pending() {
		m.lose()
		return
	}
	if wake != never && wake != m.wakeAt {
		m.wakeAt = wake
		m.commands = append(m.commands, Command{Kind: Wake, At: wake})
	}
}

func (m *Machine) connect(now time.Duration, i int) {
	ep := m.list[i].Endpoint
	m.list[i].tried = true
	id := len(m.attempts)
	m.attempts = append(m.attempts, attempt{addr: ep.Addr})
	m.running++
	m.nextAt = now + m.delay(now, ep.Addr.Addr())
	m.commands = append(m.commands, Command{Kind: Connect, ID: id, Endpoint: ep})
}

// delay returns the Connection Attempt Delay after an attempt to addr. If the caller's time is
// limited, it is short enough for every address to get a turn.
func (m *Machine) delay(now time.Duration, addr netip.Addr) time.Duration {
	d := m.cfg.AttemptDelay
	if m.cfg.Delay != nil {
		if known := m.cfg.Delay(addr); known > 0 {
			d = known
		}
	}
	if m.cfg.Limit > now {
		left := 1 // an answer may still add an address
		for i := range m.list {
			if !m.list[i].tried {
				left++
			}
		}
		d = min(d, (m.cfg.Limit-now)/time.Duration(left+1))
	}
	return min(max(d, MinAttemptDelay), MaxAttemptDelay)
}

// resolutionDelay returns the Resolution Delay. It leaves half of a very short limit to the
// attempts.
func (m *Machine) resolutionDelay() time.Duration {
	d := m.cfg.ResolutionDelay
	if m.cfg.Limit > 0 {
		d = min(d, (m.cfg.Limit-m.known)/2)
	}
	return max(d, 0)
}

func (m *Machine) untried() int {
	for i := range m.list {
		if !m.list[i].tried {
			return i
		}
	}
	return -1
}
