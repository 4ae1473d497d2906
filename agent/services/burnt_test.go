package services

import (
	"testing"
	"time"
)

// TestSYNsThatUsePartsUp: SYNs that no pod answers use all parts up at once. A dead pod is passed
// over nevertheless, one that is well is not, and the flows are divided again at a bounded rate.
func TestSYNsThatUsePartsUp(t *testing.T) {
	s := newSimulation(t, 3, 0)
	s.dead[podAt(1)] = true
	const end = 10 * time.Minute
	passed, wrong := 0, 0
	for s.now < end {
		for range 20 {
			s.connect(s.r.IntN(60000), true)
			for range 150 {
				s.connect(s.r.IntN(60000), false)
			}
		}
		s.second(0)
		for _, i := range []int{0, 2} {
			if s.state(i) != stateOK {
				wrong++
			}
		}
		if s.state(1) == statePassed {
			passed++
		}
	}
	if passed == 0 {
		t.Error("the dead pod is never passed over")
	}
	if wrong > 10 { // chance has it once in 3,000 suspicions
		t.Errorf("pods that are well were passed over %d seconds long", wrong)
	}
	// Each pass over has one more turn, which waits for nothing.
	if most := uint64(end/turnPause) + 20; s.h.turn > most {
		t.Errorf("the flows were divided %d times, more than %d", s.h.turn, most)
	}
}
