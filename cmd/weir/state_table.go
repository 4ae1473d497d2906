package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirnet/weir/agent/api"
)

// printTable prints how full the state table is, what it refused, and the state of sweep and SYN
// cookies. Each line begins with a prefix.
func printTable(c *call, t *api.StateTable, prefix string) {
	line := func(format string, args ...any) { fmt.Fprintf(c.out, prefix+format+"\n", args...) }
	source := ""
	if t.PerSource > 0 {
		source = fmt.Sprintf(" (%d of one source)", t.PerSource)
	}
	line("table: %d of %d states; %d established, %d of %d half-open%s", t.States, t.StatesMax,
		t.Established, t.HalfOpen, t.HalfOpenMax, source)
	var refused []string
	for _, why := range slices.Sorted(maps.Keys(t.Refused)) {
		refused = append(refused, fmt.Sprintf("%s %d", why, t.Refused[why]))
	}
	if refused == nil {
		refused = []string{"none"}
	}
	line("packets refused a state: %s; %d states evicted", strings.Join(refused, ", "),
		t.Evicted)
	if t.RatesFull > 0 {
		line("limit-rate and pipes: no space for a bucket for %d packets", t.RatesFull)
	}
	if n := &t.Translations; n.Made > 0 || n.Refused > 0 {
		line("translations: %d of %d (%d of one pod), each two more entries of the table; %d "+
			"evicted, %d packets refused for lack of a port",
			n.Now, n.Max, n.PerPod, n.Evicted, n.Refused)
	}
	line("sweep: no expired state is older than %.1f s; events lost in the kernel: %d", t.SweepLag,
		t.EventsLost)
	k := &t.Cookies
	switch {
	case k.Impossible != "":
		line("SYN cookies: none (%s)", c.show(k.Impossible))
	case k.On:
		line("SYN cookies: ON, %d sent, %d redeemed, %d refused by the host", k.Sent, k.Redeemed,
			k.Refused)
	default:
		line("SYN cookies: off (%d times on), %d sent, %d redeemed, %d refused by the host",
			k.TimesOn, k.Sent, k.Redeemed, k.Refused)
	}
}

// isNotable reports whether the figures of a table say more than that all is well: something is
// more than half full, refused, evicted or lost, or there were SYN cookies.
func isNotable(t *api.StateTable) bool {
	n, k := &t.Translations, &t.Cookies
	for _, packets := range t.Refused {
		if packets > 0 {
			return true
		}
	}
	return t.States > t.StatesMax/2 || t.HalfOpen > t.HalfOpenMax/2 || n.Now > n.Max/2 ||
		t.Evicted+t.EventsLost+t.RatesFull+n.Evicted+n.Refused > 0 || k.On || k.TimesOn > 0
}
