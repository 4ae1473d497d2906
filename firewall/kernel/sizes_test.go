package kernel

import (
	"testing"
	"unsafe"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/rule"
)

// TestSizes checks what places are computed from.
func TestSizes(t *testing.T) {
	for what, sizes := range map[string][2]uintptr{
		"a code":         {unsafe.Sizeof(weirCode{}), 64},
		"a cond":         {unsafe.Sizeof(weirCond{}), 16},
		"a range":        {unsafe.Sizeof(weirRange{}), unsafe.Sizeof(rule.Range{})},
		"a span":         {unsafe.Sizeof(weirSpan{}), 32},
		"a side":         {unsafe.Sizeof(weirSide{}), 64},
		"a set":          {unsafe.Sizeof(weirSet{}), 20 * 64},
		"a line of tags": {unsafe.Sizeof(weirTagLine{}), 64},
	} {
		if sizes[0] != sizes[1] {
			t.Errorf("%s has %d bytes, not %d", what, sizes[0], sizes[1])
		}
	}
	if n := unsafe.Sizeof(weirHeader{}); n > rowSize {
		t.Errorf("the header has %d bytes, more than a row", n)
	}
	const hintSize = 8
	// Memory per state, for both families, at the highest number of states.
	states := firewall.DefaultOptions().MaxStates
	per := float64(setsFor(states)) * float64(unsafe.Sizeof(weirSet{})+unsafe.Sizeof(weirTagLine{})+
		hintSize) / float64(states)
	t.Logf("memory per state: %.1f bytes", per)
	if per > 192 {
		t.Errorf("memory per state: %.1f bytes", per)
	}
}
