package overlay

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/testrand"
)

// pathModel is a peer of the kernel's WireGuard and the network to it, in steps of watchEvery.
type pathModel struct {
	k        kernelPath
	now      time.Duration
	s        pathSample
	works    map[netip.AddrPort]bool // the address reaches the peer
	routed   map[netip.AddrPort]bool // the host has a route; all if nil
	answered time.Duration           // when the peer sent something last
	sentLost int                     // steps in which what was sent was lost
}

var (
	pathA = netip.MustParseAddrPort("192.0.2.1:51820")
	pathB = netip.MustParseAddrPort("198.51.100.1:51820")
	pathC = netip.MustParseAddrPort("[2001:db8::1]:51820")
)

func newPathModel(candidates ...netip.AddrPort) *pathModel {
	m := &pathModel{k: kernelPath{candidates: candidates}, works: map[netip.AddrPort]bool{}}
	m.s = pathSample{endpoint: candidates[0], session: true,
		reachable: func(a netip.AddrPort) bool { return m.routed == nil || m.routed[a] }}
	return m
}

// step lets some bytes go out, and the peer answer at once if it answers.
func (m *pathModel) step(out uint64, answers bool) {
	m.now += watchEvery
	arrives := m.works[m.s.endpoint] && m.s.reachable(m.s.endpoint)
	if out > 0 && m.s.reachable(m.s.endpoint) {
		m.s.sent += out
	}
	switch {
	case out > 0 && !arrives:
		m.sentLost++
	case out > 0 && answers:
		m.s.received += 1000
		m.answered = m.now
	case out > 0 && m.now-m.answered >= 10*time.Second: // WireGuard's own
		m.s.received += keepaliveSize
		m.answered = m.now
	}
	if to, move := m.k.step(m.now, m.s); move {
		m.s.endpoint = to
	}
}

// TestKernelPathDies: a path that dies under traffic in both directions is left within half a
// second, whichever of the others works.
func TestKernelPathDies(t *testing.T) {
	for _, left := range []netip.AddrPort{pathB, pathC} {
		m := newPathModel(pathA, pathB, pathC)
		m.works[pathA] = true
		for range 100 {
			m.step(5000, true)
		}
		if m.s.endpoint != pathA || m.sentLost > 0 {
			t.Fatalf("a path that works: %v, %d lost", m.s.endpoint, m.sentLost)
		}
		m.works = map[netip.AddrPort]bool{left: true}
		for range 10 {
			m.step(5000, true)
		}
		if m.s.endpoint != left || m.sentLost > 8 || m.k.moves != 1 {
			t.Errorf("the path to %v: %v after %d steps, %d moves", left, m.s.endpoint, m.sentLost,
				m.k.moves)
		}
	}
}

// TestKernelPathRetransmits: a path dies when a connection has one packet under way. Of its
// retransmissions, which come after 200 ms, 400 ms and so on, each later one tries an address.
func TestKernelPathRetransmits(t *testing.T) {
	m := newPathModel(pathA, pathB, pathC)
	m.works[pathA] = true
	for range 100 {
		m.step(5000, true)
	}
	m.works = map[netip.AddrPort]bool{pathC: true}
	died := m.now
	for wait, next := 4, 0; m.answered <= died && m.now-died < time.Minute; next-- {
		out := uint64(0)
		if next <= 0 {
			out, next, wait = 500, wait/2, wait*2
		}
		m.step(out, true)
	}
	if m.sentLost != 3 || m.s.endpoint != pathC || m.now-died > 3*time.Second {
		t.Errorf("after %v and %d lost packets the endpoint is %v", m.now-died, m.sentLost,
			m.s.endpoint)
	}
}

// TestKernelPathOneWay: a peer that has nothing to answer is not left for a dead address again and
// again.
func TestKernelPathOneWay(t *testing.T) {
	m := newPathModel(pathA, pathB, pathC)
	m.works[pathA] = true
	for range 50 {
		m.step(5000, true)
	}
	for range 6000 { // ten minutes
		m.step(5000, false)
	}
	if m.sentLost > 60 {
		t.Errorf("what was sent in %v was lost", time.Duration(m.sentLost)*watchEvery)
	}
	if m.sentLost == 0 {
		t.Error("no other address was tried, so the test shows nothing")
	}
	for range 100 { // it answers again
		m.step(5000, true)
	}
	lost := m.sentLost
	m.works = map[netip.AddrPort]bool{pathB: true}
	for range 20 {
		m.step(5000, true)
	}
	if m.s.endpoint != pathB || m.sentLost > lost+5 {
		t.Errorf("a path that dies afterwards: %v, %d more lost", m.s.endpoint, m.sentLost-lost)
	}
}

// TestKernelPathFirstHandshake: without a session each handshake, which WireGuard begins every five
// seconds, goes to the next address.
func TestKernelPathFirstHandshake(t *testing.T) {
	m := newPathModel(pathA, pathB, pathC)
	m.s.session, m.works[pathC] = false, true
	var asked []netip.AddrPort
	for i := range 120 {
		out := uint64(0)
		if i%50 == 0 {
			out = sizeInitiation
			asked = append(asked, m.s.endpoint)
		}
		m.step(out, true)
	}
	if want := []netip.AddrPort{pathA, pathB, pathC}; !slices.Equal(asked, want) {
		t.Errorf("the handshakes went to %v, not %v", asked, want)
	}
}

// TestKernelPathWithoutRoute: what the host has no route to is left at once, although nothing is
// counted as sent, and not chosen; an idle peer is left alone otherwise.
func TestKernelPathWithoutRoute(t *testing.T) {
	m := newPathModel(pathA, pathB, pathC)
	m.works, m.routed = map[netip.AddrPort]bool{pathC: true}, map[netip.AddrPort]bool{pathC: true}
	m.step(5000, true)
	if m.s.endpoint != pathC {
		t.Errorf("the endpoint is %v", m.s.endpoint)
	}
	for range 1000 {
		m.step(0, true)
		m.step(keepaliveSize, false)
	}
	if m.s.endpoint != pathC || m.sentLost > 1001 {
		t.Errorf("the endpoint of an idle peer is %v", m.s.endpoint)
	}
	m = newPathModel(pathA)
	for range 1000 {
		if m.step(5000, true); m.s.endpoint != pathA {
			t.Fatalf("the only endpoint was left for %v", m.s.endpoint)
		}
	}
}

// TestKernelPathAtRandom: whatever happened before, a path that works is found within the longest
// silence of a peer that works, and the rest of the round.
func TestKernelPathAtRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(testrand.Seed(t), 0))
	all := []netip.AddrPort{pathA, pathB, pathC}
	for range 300 {
		m := newPathModel(all...)
		for range r.IntN(200) {
			if r.IntN(10) == 0 {
				m.works = map[netip.AddrPort]bool{all[r.IntN(3)]: r.IntN(2) == 0,
					all[r.IntN(3)]: r.IntN(2) == 0}
			}
			m.s.session = r.IntN(4) > 0
			m.step(uint64(r.IntN(3))*1000, r.IntN(2) == 0)
			if !slices.Contains(all, m.s.endpoint) || m.k.answerTime > longestQuiet {
				t.Fatalf("the endpoint is %v, the answer time %v", m.s.endpoint, m.k.answerTime)
			}
		}
		m.works, m.s.session = map[netip.AddrPort]bool{all[r.IntN(3)]: true}, true
		lost := 0
		for ; !m.works[m.s.endpoint] && lost < 1000; lost++ {
			m.step(5000, true)
		}
		if took := time.Duration(lost) * watchEvery; took > longestQuiet+2*quiet+watchEvery {
			t.Fatalf("a path that works is found after %v", took)
		}
	}
}
