package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestLongPackage: the Debian package installs in a clean root, runs, is upgraded under a running
// node, and goes without a trace.
func TestLongPackage(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	need(t, "dpkg-deb", "unshare", "man")
	old, next := packages(t)
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("unshare", "-mn", "testdata/deb/clean-root", root, old,
		next).CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "all well") {
		t.Errorf("%v\n%s", err, out)
	}
}

// buildPackages makes packages of this tree and returns their paths. It takes 14 s of a processor.
func buildPackages(arch string, args ...string) ([]string, error) {
	cmd := exec.Command("../dist/package/build", args...)
	if arch != "" {
		cmd.Env = append(os.Environ(), "GOARCH="+arch)
	}
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("dist/package/build: %w\n%s", err, failed.Stderr)
	}
	return strings.Fields(string(out)), err
}

// built are the Debian and the RPM package of this tree, made once for all tests.
var built = sync.OnceValues(func() ([]string, error) {
	return buildPackages("", "deb,rpm", filepath.Join(filepath.Dir(weir), "packages"))
})

// ownPackages returns them.
func ownPackages(t *testing.T) (deb, rpm string) {
	t.Helper()
	need(t, "dpkg-deb", "rpm", "rpmbuild")
	paths, err := built()
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) != 2 {
		t.Fatalf("the packages are %q", paths)
	}
	return paths[0], paths[1]
}

// packages returns the package, and its next version: the same files under another number.
func packages(t *testing.T) (old, next string) {
	t.Helper()
	old, _ = ownPackages(t)
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	next = filepath.Join(t.TempDir(), "next")
	run("dpkg-deb", "-R", old, next)
	run("sed", "-i", "s/^Version: .*/Version: 99/", filepath.Join(next, "DEBIAN/control"))
	run("dpkg-deb", "--root-owner-group", "-Znone", "-b", next, next+".deb")
	return old, next + ".deb"
}

// TestLongPackageIsReproducible: the packages of the same sources in another place, without
// a checkout, have the same bytes, and their binary names the commit.
func TestLongPackageIsReproducible(t *testing.T) {
	need(t, "git")
	t.Parallel()
	deb, rpm := ownPackages(t)
	dir := t.TempDir()
	script := `set -e
commit=$(git rev-parse HEAD)
when=$(git log -1 --format=%ct)
mkdir "$3" && git ls-files -z | xargs -0 cp --parents -dt "$3"
cd "$3" && umask 077
COMMIT=$commit SOURCE_DATE_EPOCH=$when dist/package/build deb,rpm "$4" >/dev/null
cmp "$1" "$4"/*.deb
cmp "$2" "$4"/*.rpm
dpkg-deb -x "$4"/*.deb "$4/root"
"$4/root/usr/bin/weir" version | grep " ${commit:0:12} "`
	cmd := exec.Command("bash", "-c", script, "-", deb, rpm, filepath.Join(dir, "there"),
		filepath.Join(dir, "again"))
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
