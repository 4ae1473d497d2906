package overlay

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// depth sounds a path, of which came reports whether a packet of some size came through and was
// answered, for some time. It returns what was found, which is 0 for nothing, and how many bytes
// that took.
func searchPMTU(s *prober, path netip.AddrPort, full int, begin, end time.Duration,
	acked func(size int) bool) (found, bytes int) {
	for now := begin; now < end; now += watchEvery {
		send, size := s.step(path, full, full, int64(now))
		if size > 0 {
			found = size
		}
		for _, size := range send {
			if bytes += size; acked(size) {
				s.answered(s.number, size)
			}
		}
	}
	return found, bytes
}

func TestPMTUProbe(t *testing.T) {
	path := netip.MustParseAddrPort("[2001:db8::1]:1")
	upTo := func(limit int) func(int) bool { return func(size int) bool { return size <= limit } }
	for _, c := range []struct{ limit, want int }{{9000, 0}, {1500, 0}, {1499, 1492}, {1492, 1492},
		{1479, 1472}, {1300, 1280}, {1280, 1280}, {0, 0}} {
		var s prober
		if got, _ := searchPMTU(&s, path, 1500, 0, 5*time.Second, upTo(c.limit)); got != c.want {
			t.Errorf("a path of %d bytes was found to carry %d, want %d", c.limit, got, c.want)
		}
	}
	var s prober
	if _, n := searchPMTU(&s, path, 1500, 0, 10*time.Minute, upTo(1500)); n != 20*1500 {
		t.Errorf("a good path was probed by %d bytes in ten minutes", n)
	}
	// A hole that comes later, on this path or with another one.
	if got, _ := searchPMTU(&s, path, 1500, 10*time.Minute, 11*time.Minute,
		upTo(1400)); got != 1400 {
		t.Errorf("a path that became small was found to carry %d", got)
	}
	other := netip.MustParseAddrPort("[2001:db8::2]:1")
	if got, _ := searchPMTU(&s, other, 1500, 11*time.Minute, 11*time.Minute+5*time.Second,
		upTo(1440)); got != 1440 {
		t.Errorf("another path was found to carry %d", got)
	}
	// No answer, as from other WireGuards.
	if got, n := searchPMTU(&s, path, 1500, 0, time.Hour, upTo(0)); got != 0 || n > 200_000 {
		t.Errorf("in silence %d was found by %d bytes in an hour", got, n)
	}
	// An answer to an earlier probe.
	s = prober{}
	s.step(path, 1500, 1500, 0)
	if s.answered(s.number+1, 1500); s.acked != 0 {
		t.Error("an answer to something else was believed")
	}
}

// TestPMTUProbeLies: a peer acknowledges sizes that were not probed.
func TestPMTUProbeLies(t *testing.T) {
	path := netip.MustParseAddrPort("[2001:db8::1]:1")
	var s prober
	for now := time.Duration(0); now < 5*time.Second; now += watchEvery {
		send, found := s.step(path, 1500, 1500, int64(now))
		for _, lie := range []int{1, 39, 68, 1279, 1281, 1499, 9000, 1 << 31} {
			s.answered(s.number, lie)
		}
		if len(send) == 1 && s.try == 1 {
			if s.answered(s.number, 1280); s.acked != 0 {
				t.Error("a size that is probed later was believed")
			}
		}
		if found != 0 || s.acked != 0 {
			t.Fatalf("%d, %d was believed", found, s.acked)
		}
	}
}

// TestPMTURaise: a path that was found small is asked again after a while, and at once when it
// is another one.
func TestPMTURaise(t *testing.T) {
	one, other := netip.MustParseAddrPort("[2001:db8::1]:1"),
		netip.MustParseAddrPort("[2001:db8::2]:1")
	var s prober
	full, limit, now := 1500, 1400, time.Duration(0)
	run := func(path netip.AddrPort, d time.Duration) (bytes int) {
		for end := now + d; now < end; now += watchEvery {
			send, size := s.step(path, full, 1500, int64(now))
			if size > 0 {
				full = size
			}
			for _, size := range send {
				if bytes += size; size <= limit {
					s.answered(s.number, size)
				}
			}
		}
		return bytes
	}
	if run(one, 5*time.Second); full != 1400 {
		t.Fatalf("the path has %d", full)
	}
	if n := run(one, 30*time.Minute); full != 1400 || n > 500_000 {
		t.Errorf("after half an hour the small path has %d, for %d bytes", full, n)
	}
	limit = 1500
	if run(one, 6*time.Minute); full != 1500 {
		t.Errorf("the path that has become larger has %d", full)
	}
	limit = 1400
	run(one, time.Minute)
	limit = 1500
	if run(other, 2*time.Second); full != 1500 {
		t.Errorf("another path has %d", full)
	}
}

// TestPMTUProbeWithLoss: what is lost for other reasons than its size makes no path small.
func TestPMTUProbeWithLoss(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	wrong := 0
	for range 2000 {
		var s prober
		got, _ := searchPMTU(&s, netip.MustParseAddrPort("[2001:db8::1]:1"), 1500, 0, 5*time.Second,
			func(int) bool { return random.IntN(10) > 1 })
		if got != 0 {
			wrong++
		}
	}
	if wrong > 2 {
		t.Errorf("%d of 2000 searches found a path small that loses a fifth of all datagrams",
			wrong)
	}
}

// TestPMTUProbeAnswers: a probe is answered when the peer sent it, from where the peer is, and
// whole.
func TestPMTUProbeAnswers(t *testing.T) {
	a, b := pair(t, func(c *Config) { c.NoOffload = true }, func(p *Peer) {
		p.Endpoints = []string{map[string]string{"a": "[fd98::1]:51820",
			"b": "[fd98::2]:51820"}[p.Name]}
	})
	echo(t, a, b, 10)
	ours, theirs := a.dev.bind.peerOf(b.key.Public()), b.dev.bind.peerOf(a.key.Public())
	from := &remoteEndpoint{path: *theirs.current.Load(), bind: b.dev.bind}
	from.owner.Store(theirs)
	ours.prober.mu.Lock() // an acknowledgement of the search under way may come late
	ours.prober.number++
	ours.prober.due = 1 << 62
	ours.prober.mu.Unlock()
	answered := func(m []byte) bool {
		t.Helper()
		ours.prober.mu.Lock()
		ours.prober.path, ours.prober.try, ours.prober.due = ours.current.Load().addr, 1,
			1<<62
		ours.prober.full, ours.prober.acked, ours.prober.probed = 1500, 0, []int{1400, 1500}
		ours.prober.mu.Unlock()
		b.dev.bind.handleProbe(m, from)
		for begin := time.Now(); time.Since(begin) < 200*time.Millisecond; {
			time.Sleep(time.Millisecond)
			ours.prober.mu.Lock()
			acked := ours.prober.acked
			ours.prober.mu.Unlock()
			if acked > 0 {
				return true
			}
		}
		return false
	}
	good := func() []byte { return ours.message(typeProbe, 1400) }
	for name, change := range map[string]func(m []byte) []byte{
		"cut off":        func(m []byte) []byte { return m[:1000] },
		"short":          func(m []byte) []byte { return m[:20] },
		"another number": func(m []byte) []byte { m[8]++; return m },
		"another code":   func(m []byte) []byte { m[probeMACAt]++; return m },
		"as an answer":   func(m []byte) []byte { m[0] = typeProbeAck; return m },
	} {
		if answered(change(good())) {
			t.Errorf("%s: answered", name)
		}
	}
	reflected := &remoteEndpoint{path: *ours.current.Load(), bind: a.dev.bind}
	reflected.owner.Store(ours)
	mine := good()
	forOurs := slices.Clone(mine[:sizeProbeAck])
	// our own probe as an answer, if it had our own key
	forOurs[0] = typeProbeAck
	out, _ := ours.probeKeys()
	copy(forOurs[probeMACAt:], code(out, forOurs))
	if a.dev.bind.handleProbe(forOurs, reflected); ours.prober.acked != 0 {
		t.Error("a message of our own is believed")
	}
	from.owner.Store(nil)
	if answered(good()) {
		t.Error("answered an address that is not the peer's")
	}
	from.owner.Store(theirs)
	for try := 0; !answered(good()); try++ {
		if try == 1000 {
			t.Fatal("a valid probe is not answered")
		}
	}
}
