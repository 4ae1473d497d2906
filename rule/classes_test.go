package rule

import (
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/program"
)

// TestVectorsAreBounded: a rule file that tells too many sets of addresses apart is refused before
// memory is asked for.
func TestVectorsAreBounded(t *testing.T) {
	// In each of eight stretches of addresses the rules begin in another order and end together:
	// every beginning is another set.
	limits := make([]limited, 16000)
	for slot := range limits {
		var s spans
		for n := range 8 {
			begin := slot * (2*n + 3) % 16001
			s = append(s, span{lo: key{0, uint64(n*20000 + begin)},
				hi: key{0, uint64(n*20000 + 16500)}})
		}
		limits[slot] = limited{slot: slot, spans: s}
	}
	if _, err := (&workspace{limits: limits}).classify(len(limits),
		dimRange[program.DimSrc]); err == nil ||
		!strings.Contains(err.Error(), "put addresses into tables") {
		t.Errorf("error %v", err)
	}
	if _, err := (&workspace{limits: limits[:2000]}).classify(2000,
		dimRange[program.DimSrc]); err != nil {
		t.Error(err)
	}
}
