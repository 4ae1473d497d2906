package enginetest

import "testing"

// TestDamage damages packets of every size that is drawn, the empty one included.
func TestDamage(t *testing.T) {
	changed := 0
	for seed := range uint64(3000) {
		g := newRandom(seed)
		before := make([]byte, g.IntN(3)*20)
		if after := g.damage(before); string(after) != string(before) {
			changed++
		}
	}
	if changed < 1500 {
		t.Errorf("of 3000 packets %d were damaged", changed)
	}
}
