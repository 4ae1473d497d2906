package firewall

import (
	"testing"
	"unsafe"
)

// TestVerdictSize: a verdict is copied by one load and one store.
func TestVerdictSize(t *testing.T) {
	if n := unsafe.Sizeof(Verdict{}); n != 16 {
		t.Errorf("a verdict has %d bytes, not 16", n)
	}
}
