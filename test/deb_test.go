package test

import (
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
	old := built[strings.LastIndexByte(built, '\n')+1:]
	// The next version is the same files under another number.
	next := filepath.Join(dir, "next")
	run("dpkg-deb", "-R", old, next)
	run("sed", "-i", "s/^Version: .*/Version: 99/", filepath.Join(next, "DEBIAN/control"))
	run("dpkg-deb", "--root-owner-group", "-Znone", "-b", next, next+".deb")
	root := filepath.Join(dir, "root")
	run("mkdir", root)
	if out := run("unshare", "-mn", "testdata/deb/clean-root", root, old, next+".deb"); !strings.HasSuffix(out, "all well") {
		t.Errorf("%s", out)
	}
}
