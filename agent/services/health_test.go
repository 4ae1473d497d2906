package services

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/testrand"
)

// simulation is a service whose flows go to pods as the kernel would send them.
type simulation struct {
	t      *testing.T
	r      *rand.Rand
	h      *health
	now    time.Duration
	counts map[netip.AddrPort]forward.BackendCounters
	dead   map[netip.AddrPort]bool // accepts nothing
	part   map[int]int             // of the flows, by the client's port, until the next turn
	seen   map[int]bool            // parts of which a connection has begun
	turn   uint64
	lost   int // connections of honest clients that no pod accepted
}

// newSimulation is one of several runs of a test, each with chance of its own.
func newSimulation(t *testing.T, pods, run int) *simulation {
	s := &simulation{t: t, r: rand.New(rand.NewPCG(testrand.Seed(t), uint64(run))), h: newHealth(),
		counts: map[netip.AddrPort]forward.BackendCounters{}, dead: map[netip.AddrPort]bool{},
		part: map[int]int{}, seen: map[int]bool{}}
	for i := range pods {
		s.counts[podAt(i)] = forward.BackendCounters{}
	}
	s.h.look(0, s.counts, len(s.seen))
	return s
}

func podAt(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 88, 0, byte(2 + i)}), 80)
}

// choose returns the pod for a client's port, which has the same one until the next turn, and
// whether its part is seen for the first time.
func (s *simulation) choose(port int) (at netip.AddrPort, first bool) {
	if s.turn != s.h.turn {
		s.turn = s.h.turn
		clear(s.part)
		clear(s.seen)
	}
	part, known := s.part[port]
	if !known {
		part = s.r.IntN(forward.FlowParts)
		s.part[port] = part
	}
	first = !s.seen[part]
	s.seen[part] = true
	for n := part; ; n++ {
		if at := podAt(n % len(s.counts)); s.usable(at) {
			return at, first
		}
	}
}

func (s *simulation) usable(at netip.AddrPort) bool {
	b := s.h.use(at)
	return !b.Out && (b.ProbeEnd == 0 || s.counts[at].Begun < b.ProbeEnd)
}

// connect begins a connection; one that is not valid is answered by no pod.
func (s *simulation) connect(port int, valid bool) (at netip.AddrPort, accepted bool) {
	at, first := s.choose(port)
	n := s.counts[at]
	n.Begun++
	if accepted = valid && !s.dead[at]; accepted {
		n.Accepted++
		if first {
			n.Drawn++
		}
	}
	s.counts[at] = n
	return at, accepted
}

// second lets a second go by with so many connections of honest clients.
func (s *simulation) second(connections int) {
	s.t.Helper()
	for range connections {
		if _, ok := s.connect(s.r.IntN(60000), true); !ok {
			s.lost++
		}
	}
	s.now += time.Second
	s.h.look(s.now, s.counts, len(s.seen))
	used := 0
	for at := range s.counts {
		if !s.h.use(at).Out {
			used++
		}
	}
	if used == 0 {
		s.t.Fatalf("after %v no pod is in use", s.now)
	}
}

func (s *simulation) state(i int) state { return s.h.pods[podAt(i)].state }

// TestDeadPodIsPassedOver: one that accepts nothing gets no flows any more, then a few at a time,
// in pauses that grow, and is in use as soon as it accepts one.
func TestDeadPodIsPassedOver(t *testing.T) {
	s := newSimulation(t, 3, 0)
	for range 60 {
		s.second(100)
	}
	for i := range 3 {
		if s.state(i) != stateOK || s.lost != 0 {
			t.Errorf("all are well, and pod %d is %s, %d losses", i, s.state(i), s.lost)
		}
	}
	s.dead[podAt(1)] = true
	for s.state(1) == stateOK {
		s.second(100)
		if s.now > 70*time.Second {
			t.Fatal("a dead pod is not passed over")
		}
	}
	s.lost = 0
	probes, before := 0, state("")
	for range 600 {
		s.second(100)
		if now := s.state(1); now != before && now == stateProbing {
			probes++
		}
		before = s.state(1)
	}
	// 2, 4, 8, 16, 32, 64 and then every 120 seconds
	if probes < 5 || probes > 12 || s.lost > probes*2*expected {
		t.Errorf("%d probes in ten minutes, %d losses", probes, s.lost)
	}
	s.dead[podAt(1)] = false
	for s.state(1) != stateOK {
		s.second(100)
		if s.now > 900*time.Second {
			t.Fatal("a pod that accepts again is not used")
		}
	}
}

// TestFewPodsAreNoWorseOff: a pod that is well misses its turn by chance, and among few pods more
// often in a row. It is suspected when that happens once in 55 times, whatever their number is.
func TestFewPodsAreNoWorseOff(t *testing.T) {
	for _, pods := range []int{2, 3, 10, 128} {
		for drawn := range uint64(2000) {
			h, counts := newHealth(), map[netip.AddrPort]forward.BackendCounters{}
			for i := range pods {
				counts[podAt(i)] = forward.BackendCounters{}
			}
			h.look(0, counts, 0)
			counts[podAt(0)] = forward.BackendCounters{Begun: fewest}
			for i := range pods - 1 {
				counts[podAt(1+i)] = forward.BackendCounters{Begun: 1, Accepted: 1}
			}
			counts[podAt(1)] = forward.BackendCounters{Begun: drawn + 1, Accepted: drawn + 1,
				Drawn: drawn}
			h.look(time.Second, counts, 0)
			h.look(2*time.Second, counts, 0)
			chance := math.Pow(float64(pods-1)/float64(pods), float64(drawn))
			if want := chance <= math.Exp(-expected); h.pods[podAt(0)].suspected != want {
				t.Fatalf("one of %d pods accepts none of %d connections, by chance in %.4f of "+
					"all cases; suspected: %v", pods, drawn, chance, !want)
			}
			if chance < math.Exp(-expected-1) {
				break
			}
		}
	}
}

// TestAllPodsDead: they are all used. So is the only one.
func TestAllPodsDead(t *testing.T) {
	for _, pods := range []int{1, 3} {
		s := newSimulation(t, pods, 0)
		for i := range pods {
			s.dead[podAt(i)] = true
		}
		for range 300 {
			s.second(50)
			for i := range pods {
				if s.state(i) != stateOK {
					t.Fatalf("of %d pods that accept nothing, one is %s", pods, s.state(i))
				}
			}
		}
		// one after the other comes back
		for i := range pods {
			s.dead[podAt(i)] = false
		}
		s.second(50)
		s.lost = 0
		s.second(50)
		if s.lost != 0 {
			t.Errorf("%d losses after all have come back", s.lost)
		}
	}
}

// TestPodsDieOneByOne: whatever dies in whatever order, the last one that accepts is used.
func TestPodsDieOneByOne(t *testing.T) {
	s := newSimulation(t, 5, 0)
	for i := range 4 {
		s.dead[podAt(i)] = true
		for range 30 {
			s.second(200)
		}
		if s.state(i) == stateOK {
			t.Errorf("pod %d is dead and in use", i)
		}
	}
	s.lost = 0
	for range 20 {
		s.second(200)
	}
	if s.lost > 100 || s.state(4) != stateOK {
		t.Errorf("%d losses of 4000, the living pod is %s", s.lost, s.state(4))
	}
}

// TestSlowServiceSaysNothing: a few connections say nothing.
func TestSlowServiceSaysNothing(t *testing.T) {
	s := newSimulation(t, 4, 0)
	for range 3600 {
		s.second(s.r.IntN(2))
	}
	for i := range 4 {
		if s.state(i) != stateOK {
			t.Errorf("pod %d is %s", i, s.state(i))
		}
	}
}

// TestOutsiderMarksNoPod: an outsider has no pod passed over that is well, even when others connect
// rarely. It sends a flood of SYNs that no pod answers, one from the ports that lead to a certain
// pod, or connections that avoid it.
func TestOutsiderMarksNoPod(t *testing.T) {
	for name, attack := range map[string]func(*simulation, map[int]netip.AddrPort){
		"SYNs that no pod answers": func(s *simulation, _ map[int]netip.AddrPort) {
			for range 500 {
				s.connect(s.r.IntN(60000), false)
			}
		},
		"SYNs to one pod alone": func(s *simulation, learned map[int]netip.AddrPort) {
			for port := 50000; port < 50050; port++ { // valid: what answers says where it leads
				learned[port], _ = s.connect(port, true)
			}
			for _, port := range slices.Sorted(maps.Keys(learned)) {
				if learned[port] == podAt(0) {
					for range 20 {
						s.connect(port, false)
					}
				}
			}
		},
		"connections that avoid it": func(s *simulation, learned map[int]netip.AddrPort) {
			if len(learned) == 0 {
				for port := 50000; port < 50500; port++ {
					learned[port], _ = s.connect(port, true)
				}
			}
			for _, port := range slices.Sorted(maps.Keys(learned)) {
				if learned[port] != podAt(0) {
					learned[port], _ = s.connect(port, true)
				} else {
					s.connect(port, false)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			passedOver := 0
			for run := range 20 {
				s := newSimulation(t, 3, run)
				learned := map[int]netip.AddrPort{}
				for range 120 {
					attack(s, learned)
					s.second(s.r.IntN(2))
					for i := range 3 {
						if s.state(i) != stateOK {
							passedOver++
						}
					}
				}
			}
			if passedOver > 2 { // chance has it once in 3,000 suspicions
				t.Errorf("pods that are well were passed over %d seconds long", passedOver)
			}
		})
	}
}

// TestHealthForgets: a pod that was well for long begins with the first pause; one that goes and
// comes again is a new one.
func TestHealthForgets(t *testing.T) {
	s := newSimulation(t, 2, 0)
	die := func() time.Duration {
		s.dead[podAt(0)] = true
		for range 400 {
			if s.second(50); s.state(0) == statePassed {
				break
			}
		}
		return s.h.pods[podAt(0)].pause
	}
	live := func(seconds int) {
		s.dead[podAt(0)] = false
		for range seconds {
			s.second(50)
		}
	}
	var pauses []time.Duration
	for range 3 {
		pauses = append(pauses, die())
		live(60)
	}
	if got := fmt.Sprint(pauses); got != "[2s 4s 8s]" {
		t.Errorf("pauses of a pod that comes and goes: %s", got)
	}
	live(int(forgets/time.Second) + 2)
	if p := die(); p != firstPause {
		t.Errorf("after a long time: %v", p)
	}
	n := s.counts[podAt(0)]
	delete(s.counts, podAt(0))
	s.h.look(s.now, s.counts, len(s.seen))
	s.counts[podAt(0)] = n
	s.h.look(s.now, s.counts, len(s.seen))
	if s.state(0) != stateOK {
		t.Errorf("a pod that comes is %s", s.state(0))
	}
}
