package soft

import (
	"strings"
	"testing"

	"github.com/weirnet/weir/firewall"
)

// TestOptionsDefaults: options without limits have those of firewall.DefaultOptions, and an error
// names the limit that is missing.
func TestOptionsDefaults(t *testing.T) {
	want := firewall.DefaultOptions()
	want.Liberal = true
	e, err := New(Options{Options: firewall.Options{Liberal: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.opts.Options != want || e.opts.Workers != 1 {
		t.Errorf("the options are %+v, want %+v", e.opts, want)
	}
	for name, o := range map[string]firewall.Options{
		"MaxStates":   {MaxHalfOpen: 10},
		"MaxHalfOpen": {MaxStates: 10},
		"MaxTracks":   {MaxStates: 10, MaxHalfOpen: 10, MaxTracks: -1},
	} {
		if _, err := New(Options{Options: o}); err == nil ||
			!strings.Contains(err.Error(), "Options."+name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
