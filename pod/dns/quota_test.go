package dns

import (
	"net/netip"
	"testing"
)

// TestQuota: pods that take all that there is do not keep another one from asking, and each is
// bounded.
func TestQuota(t *testing.T) {
	q := newQuota(6, 3)
	a := func(i byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, i}) }
	taken := func(i byte) (n int) {
		for q.take(a(i)) {
			n++
		}
		return n
	}
	if n := taken(1) + taken(2); n != 6 {
		t.Errorf("two have %d", n)
	}
	for i := range byte(20) {
		if n := taken(3 + i); n != few {
			t.Errorf("another one has %d", n)
		}
	}
	for i := range byte(22) {
		for range few {
			q.give(a(1 + i))
		}
	}
	q.give(a(1))
	q.give(a(2))
	if q.all != 0 || len(q.of) != 0 {
		t.Errorf("%d, %v are left", q.all, q.of)
	}
}
