package overlay

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// depth sounds a path, of which came says whether a packet of some size came through and was answered, for some time. It returns what was
// found, which is 0 for nothing, and how many bytes that took.
func depth(s *sounding, path netip.AddrPort, full int, begin, end time.Duration, came func(size int) bool) (found, bytes int) {
	for now := begin; now < end; now += watchEvery {
		send, size := s.turn(path, full, int64(now))
		if size > 0 {
			found = size
		}
		for _, size := range send {
			if bytes += size; came(size) {
				s.answered(s.number, size)
			}
		}
	}
	return found, bytes
}

func TestSounding(t *testing.T) {
	path := netip.MustParseAddrPort("[2001:db8::1]:1")
	upTo := func(limit int) func(int) bool { return func(size int) bool { return size <= limit } }
	for _, c := range []struct{ limit, want int }{{9000, 0}, {1500, 0}, {1499, 1492}, {1492, 1492}, {1479, 1472}, {1300, 1280}, {1280, 1280}, {0, 0}} {
		var s sounding
		if got, _ := depth(&s, path, 1500, 0, 5*time.Second, upTo(c.limit)); got != c.want {
			t.Errorf("a path of %d bytes was found to carry %d, want %d", c.limit, got, c.want)
		}
	}
	var s sounding
	if _, n := depth(&s, path, 1500, 0, 10*time.Minute, upTo(1500)); n != 20*1500 {
		t.Errorf("a good path was sounded by %d bytes in ten minutes", n)
	}
	// A hole that comes later, on this path or with another one.
	if got, _ := depth(&s, path, 1500, 10*time.Minute, 11*time.Minute, upTo(1400)); got != 1400 {
		t.Errorf("a path that became small was found to carry %d", got)
	}
	other := netip.MustParseAddrPort("[2001:db8::2]:1")
	if got, _ := depth(&s, other, 1500, 11*time.Minute, 11*time.Minute+5*time.Second, upTo(1440)); got != 1440 {
		t.Errorf("another path was found to carry %d", got)
	}
	// Nobody answers, as other WireGuards do not.
	if got, n := depth(&s, path, 1500, 0, time.Hour, upTo(0)); got != 0 || n > 200_000 {
		t.Errorf("in silence %d was found by %d bytes in an hour", got, n)
	}
	// An answer to an earlier sounding.
	s = sounding{}
	s.turn(path, 1500, 0)
	if s.answered(s.number+1, 1500); s.came != 0 {
		t.Error("an answer to something else was believed")
	}
}

// TestSoundingWithLoss: what is lost for other reasons than its size makes no path small.
func TestSoundingWithLoss(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	wrong := 0
	for range 2000 {
		var s sounding
		got, _ := depth(&s, netip.MustParseAddrPort("[2001:db8::1]:1"), 1500, 0, 5*time.Second, func(int) bool { return random.IntN(10) > 1 })
		if got != 0 {
			wrong++
		}
	}
	if wrong > 2 {
		t.Errorf("%d of 2000 soundings found a path small that loses a fifth of all datagrams", wrong)
	}
}

// TestSoundingAnswers: a sounding is answered when the peer sent it, from where the peer is, and whole.
func TestSoundingAnswers(t *testing.T) {
	a, b := pair(t, func(c *Config) { c.NoOffload = true }, func(p *Peer) {
		p.Endpoints = []string{map[string]string{"a": "[fd98::1]:51820", "b": "[fd98::2]:51820"}[p.Name]}
	})
	echo(t, a, b, 10)
	ours, theirs := a.dev.bind.pathsOf(b.key.Public()), b.dev.bind.pathsOf(a.key.Public())
	from := &arrival{hop: *theirs.current.Load(), bind: b.dev.bind}
	from.owner.Store(theirs)
	answered := func(m []byte) bool {
		t.Helper()
		ours.sounding.mu.Lock()
		ours.sounding.path, ours.sounding.try, ours.sounding.due = ours.current.Load().addr, 1, 1<<62
		ours.sounding.full, ours.sounding.came = 1500, 0
		ours.sounding.mu.Unlock()
		b.dev.bind.sounded(m, from)
		for begin := time.Now(); time.Since(begin) < 200*time.Millisecond; time.Sleep(time.Millisecond) {
			ours.sounding.mu.Lock()
			came := ours.sounding.came
			ours.sounding.mu.Unlock()
			if came > 0 {
				return true
			}
		}
		return false
	}
	good := func() []byte { return ours.message(typeSounding, 1400) }
	for name, change := range map[string]func(m []byte) []byte{
		"cut off":        func(m []byte) []byte { return m[:1000] },
		"short":          func(m []byte) []byte { return m[:20] },
		"another number": func(m []byte) []byte { m[8]++; return m },
		"another code":   func(m []byte) []byte { m[soundingCode]++; return m },
		"as an answer":   func(m []byte) []byte { m[0] = typeSounded; return m },
	} {
		if answered(change(good())) {
			t.Errorf("%s: answered", name)
		}
	}
	from.owner.Store(nil)
	if answered(good()) {
		t.Error("answered a stranger")
	}
	from.owner.Store(theirs)
	for try := 0; !answered(good()); try++ {
		if try == 20 {
			t.Fatal("a good sounding is not answered")
		}
	}
}
