package services

import (
	"testing"
	"time"
)

// onceDead is a service of three pods, the first of which was passed over and is well since. hangs
// are ports of an outsider that led to it when it answered nothing.
func onceDead(t *testing.T, run int) (s *simulation, hangs []int) {
	s = newSimulation(t, 3, run)
	s.dead[podAt(0)] = true
	for range 400 {
		s.second(10)
		hangs = hangs[:0]
		for port := 50000; port < 50060; port++ {
			if at, _ := s.connect(port, true); at == podAt(0) {
				hangs = append(hangs, port)
			}
		}
		if s.state(0) == statePassed {
			s.dead[podAt(0)] = false
			return s, hangs
		}
	}
	t.Fatal("the dead pod is not passed over")
	return nil, nil
}

// TestJunkEndsNoProbe: a pod that is well again is used again, although an outsider sends SYNs that
// no pod answers. They come in bursts or from ports that led to the pod, and honest clients connect
// rarely.
func TestJunkEndsNoProbe(t *testing.T) {
	for name, attack := range map[string]func(s *simulation, second int, hangs []int){
		"nothing": func(*simulation, int, []int) {},
		"bursts": func(s *simulation, second int, _ []int) {
			for range 60 * (1 - min(second%3, 1)) {
				s.connect(s.r.IntN(60000), false)
			}
		},
		"a few": func(s *simulation, _ int, _ []int) {
			for range 20 {
				s.connect(s.r.IntN(60000), false)
			}
		},
		"ports that led to it": func(s *simulation, _ int, hangs []int) {
			for _, port := range hangs {
				s.connect(port, false)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			const runs = 40
			total, most := time.Duration(0), time.Duration(0)
			for run := range runs {
				s, hangs := onceDead(t, run)
				well := s.now
				for second := 0; s.state(0) != stateOK && s.now-well < time.Hour; second++ {
					attack(s, second, hangs)
					s.second(s.r.IntN(2))
				}
				total += s.now - well
				most = max(most, s.now-well)
			}
			t.Logf("used again after %v on average, %v at most", total/runs, most)
			if most > 3*time.Minute || total > runs*30*time.Second {
				t.Errorf("a pod that is well was used again after %v on average, %v at most",
					total/runs, most)
			}
		})
	}
}

// TestProbeOfADeadPodIsShort: SYNs that no pod answers make a probe longer, but a pod that is dead
// costs honest clients few connections for each.
func TestProbeOfADeadPodIsShort(t *testing.T) {
	s := newSimulation(t, 3, 0)
	s.dead[podAt(0)] = true
	probes, probing := 0, false
	for s.now < time.Hour {
		for range 30 {
			s.connect(s.r.IntN(60000), false)
		}
		s.second(5)
		if now := s.state(0) == stateProbing; now != probing {
			if probing = now; !probing && s.state(0) != statePassed {
				t.Fatalf("after its probe the dead pod is %s", s.state(0))
			}
			if probing {
				probes++
				s.lost = 0
			} else if s.lost > 40 {
				t.Errorf("a probe has cost honest clients %d connections", s.lost)
			}
		}
	}
	if probes < 10 {
		t.Errorf("%d probes", probes)
	}
}
