package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
)

// TestStatusOfTable: the status has the figures of the state table only where they say more than
// that all is well.
func TestStatusOfTable(t *testing.T) {
	well := api.StateTable{States: 50, StatesMax: 100, Established: 45, HalfOpen: 5,
		HalfOpenMax: 10, Refused: map[string]uint64{"limit": 0},
		Translations: api.Translations{Now: 5, Max: 10, Made: 7}}
	for what, change := range map[string]func(*api.StateTable){
		"":               func(*api.StateTable) {},
		"half full":      func(s *api.StateTable) { s.States = 51 },
		"half-open":      func(s *api.StateTable) { s.HalfOpen = 6 },
		"translations":   func(s *api.StateTable) { s.Translations.Now = 6 },
		"refused":        func(s *api.StateTable) { s.Refused = map[string]uint64{"limit": 1} },
		"no port":        func(s *api.StateTable) { s.Translations.Refused = 1 },
		"evicted":        func(s *api.StateTable) { s.Evicted = 1 },
		"no bucket":      func(s *api.StateTable) { s.RatesFull = 1 },
		"events lost":    func(s *api.StateTable) { s.EventsLost = 1 },
		"cookies":        func(s *api.StateTable) { s.Cookies.On = true },
		"cookies before": func(s *api.StateTable) { s.Cookies.TimesOn = 1 },
	} {
		var out bytes.Buffer
		s := api.Status{Healthy: true, Weir: "0.1.0", Table: well}
		change(&s.Table)
		printStatus(&call{out: &out}, s)
		if strings.Contains(out.String(), "\ntable: ") != (what != "") {
			t.Errorf("%q:\n%s", what, out.String())
		}
		if !strings.Contains(out.String(), ", weir 0.1.0\n") {
			t.Errorf("the version is missing:\n%s", out.String())
		}
	}
}
