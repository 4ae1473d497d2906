package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/store/members"
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
	if all, err := h.bound(ca); err != nil || all["late"].Name != "late" {
		t.Errorf("late has joined, and the file has %v, %v", all, err)
	}
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

// TestSaveBound: the file is written when it lacks something, again after an error, and only then.
func TestSaveBound(t *testing.T) {
	dir := t.TempDir()
	r := &revocations{boundTo: filepath.Join(dir, "file", boundFile),
		bound: members.Certificates{}, stale: true}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.saveBound(); err == nil {
		t.Fatal("it is written below a file")
	}
	r.boundTo = filepath.Join(dir, boundFile)
	if err := r.saveBound(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(r.boundTo); err != nil {
		t.Fatalf("it was not tried again: %v", err)
	}
	if err := r.saveBound(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(r.boundTo); err == nil {
		t.Error("it is written although it lacks nothing")
	}
}
