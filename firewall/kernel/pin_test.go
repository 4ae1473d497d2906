package kernel

import (
	"strings"
	"testing"
)

// TestEveryMapIsPinned: the next start would not find a map that is not pinned, and what is in it
// would be lost with the agent.
func TestEveryMapIsPinned(t *testing.T) {
	spec, err := loadWeir()
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{}
	pinned := e.maps()
	for name := range spec.Maps {
		if _, there := pinned[name]; !there && !strings.HasPrefix(name, ".") {
			t.Errorf("map %s is not pinned", name)
		}
	}
}
