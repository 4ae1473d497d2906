package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/store/storetest"
)

// TestNameAfterARestore: the name of a host that a backup does not have is not free after the
// restore, until the host is removed.
func TestNameAfterARestore(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	a.serve(t)
	file := filepath.Join(l.dir, "backup")
	a.run(t, "backup", file)
	l.join(t, a, "late")
	h := home(a.dir)
	ca, err := h.caKeys()
	if err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "late is in the file", func() bool {
		all, err := h.bound(ca)
		if err != nil {
			t.Fatal(err)
		}
		_, there := all["late"]
		return there
	})
	other := slices.Clone(ca)
	other[0][0] ^= 1
	if all, err := h.bound(other); err != nil || len(all) > 0 {
		t.Errorf("bound by another CA: %v, %v", all, err)
	}
	a.stop(t)
	a.run(t, "restore", file)
	a.serve(t)
	if _, err := l.tryJoin(t, a, "late"); err == nil ||
		!strings.Contains(err.Error(), "member already") {
		t.Errorf("another host joins by the name: %v", err)
	}
	a.run(t, "remove", "late")
	if said := a.fails(t, "remove", "late"); !strings.Contains(said, "no host late") {
		t.Errorf("removed twice: %s", said)
	}
	l.join(t, a, "late")
}
