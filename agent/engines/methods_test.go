package engines

import (
	"reflect"
	"testing"

	"github.com/weirnet/weir/firewall/kernel"
)

// TestEnginesListEveryMethod: nothing is promoted from an embedded engine, so that a new method of
// the kernel engine does not silently skip the tunnel. Every method that a node may need has an
// explicit answer here.
func TestEnginesListEveryMethod(t *testing.T) {
	both, one := reflect.TypeFor[*Pair](), reflect.TypeFor[*kernel.Engine]()
	for f := range both.Elem().Fields() {
		if f.Anonymous {
			t.Errorf("Pair embeds %s: its methods reach one engine alone", f.Name)
		}
	}
	unused := map[string]bool{"Evaluate": true} // for tests of the kernel engine
	for m := range one.Methods() {
		if _, listed := both.MethodByName(m.Name); listed == unused[m.Name] {
			t.Errorf("Pair lists %s: %t; decide which engines it concerns", m.Name, listed)
		}
	}
}
