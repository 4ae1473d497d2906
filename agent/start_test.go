package agent

import (
	"fmt"
	"strings"
	"testing"
)

// TestFirstTables: of the tables of a cluster those that the first rules name come with them, and
// of others only what the engine is sure to take.
func TestFirstTables(t *testing.T) {
	const own = 100
	pick := firstTables(map[string]bool{"app=web": true, "banned": true}, own)
	if long := "app=" + strings.Repeat("x", longestTable-3); pick(long) {
		t.Errorf("%s comes with the first rules", long)
	}
	n := 0
	for i := range 2 * mostFirst {
		if pick(fmt.Sprint("job=", i)) {
			n++
		}
	}
	if n != mostFirst-own || !pick("job=0") || pick("job=9999") {
		t.Errorf("%d tables that no rule names come with the first rules", n)
	}
	if !pick("app=web") || !pick("banned") {
		t.Error("a table of the rules does not come with them")
	}
}
