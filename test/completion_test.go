package test

import (
	"slices"
	"strings"
	"testing"
)

// TestLiveValuesAreCompleted: shells are offered what the node has.
func TestLiveValuesAreCompleted(t *testing.T) {
	t.Parallel()
	h := newPodHost(t, "add 100 check-state\nadd 200 allow tcp from table(offices) to me 22\n"+
		"table offices add 192.0.2.0/24\n")
	h.attach("web", "--label", "app=web")
	for _, c := range []struct{ line, want string }{
		{"fw delete |", "100 200 65535"},
		{"fw zero 100 |", "100 200 65535"},
		{"fw table |", "all app=web offices"},
		{"fw table offices delete |", "192.0.2.0/24"},
		{"pod detach |", "web"},
		{"peer remove |", ""},
		{"up --iface |", "eth0 lo"},
	} {
		args := append([]string{"__complete"}, strings.Fields(strings.TrimSuffix(c.line, "|"))...)
		var got []string
		for line := range strings.Lines(h.weir(append(args, "")...)) {
			if value, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); value[0] != ':' &&
				!strings.HasPrefix(value, "weir") && !slices.Contains(got, value) {
				got = append(got, value)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s offers %q, want %q", c.line, got, c.want)
		}
	}
}
