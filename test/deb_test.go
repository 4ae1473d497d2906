package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestPackage: the Debian package installs in a clean root, runs, is upgraded under a running node, and goes without a trace.
func TestPackage(t *testing.T) {
	nstest.Root(t)
	need(t, "dpkg-deb", "unshare", "man")
	old, next := packages(t)
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("unshare", "-mn", "testdata/deb/clean-root", root, old, next).CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "all well") {
		t.Errorf("%v\n%s", err, out)
	}
}

// packages builds the package, and its next version: the same files under another number.
func packages(t *testing.T) (old, next string) {
	t.Helper()
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	built := run("../dist/deb/build", filepath.Join(dir, "out"))
	old, next = built[strings.LastIndexByte(built, '\n')+1:], filepath.Join(dir, "next")
	run("dpkg-deb", "-R", old, next)
	run("sed", "-i", "s/^Version: .*/Version: 99/", filepath.Join(next, "DEBIAN/control"))
	run("dpkg-deb", "--root-owner-group", "-Znone", "-b", next, next+".deb")
	return old, next + ".deb"
}
