package cluster

import (
	"strings"
	"testing"
	"time"
)

// TestStores: a list of weir-stores in the store that is wrong does not cut a host off for ever.
func TestStores(t *testing.T) {
	for _, c := range []struct {
		named, joined []string
		silent        time.Duration
		want          string
	}{
		{nil, []string{"a:1"}, 0, "a:1"},
		{[]string{"b:1", "c:1"}, []string{"a:1"}, 59 * time.Second, "b:1 c:1"},
		{[]string{"evil:1", "b:1"}, []string{"a:1", "b:1"}, time.Minute, "a:1 b:1 evil:1"},
	} {
		if got := strings.Join(storesOf(c.named, c.joined, c.silent), " "); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
