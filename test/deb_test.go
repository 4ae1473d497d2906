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

// TestPackage: the Debian package installs in a clean root, runs, is upgraded under a running node,
// and goes without a trace.
func TestPackage(t *testing.T) {
	t.Parallel()
	nstest.Root(t)
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

// built is the package of this tree, made once for all tests: a build takes 14 s of a processor.
var built = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("../dist/deb/build", filepath.Join(filepath.Dir(weir), "deb")).Output()
	path := strings.TrimSpace(string(out))
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w\n%s", err, failed.Stderr)
	}
	return path, err
})

// packages returns the package, and its next version: the same files under another number.
func packages(t *testing.T) (old, next string) {
	t.Helper()
	old, err := built()
	if err != nil {
		t.Fatalf("dist/deb/build: %v", err)
	}
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

// TestPackageIsReproducible: the package of the same sources in another place, where there is no
// checkout, has the same bytes, and its binary names the commit.
func TestPackageIsReproducible(t *testing.T) {
	need(t, "dpkg-deb", "git")
	t.Parallel()
	here, err := built()
	if err != nil {
		t.Fatalf("dist/deb/build: %v", err)
	}
	dir := t.TempDir()
	script := `set -e
commit=$(git rev-parse HEAD)
when=$(git log -1 --format=%ct)
mkdir "$2" && git ls-files -z | xargs -0 cp --parents -dt "$2"
cd "$2" && umask 077 && COMMIT=$commit SOURCE_DATE_EPOCH=$when dist/deb/build "$3" >/dev/null
cmp "$1" "$3"/*.deb
dpkg-deb -x "$3"/*.deb "$3/root"
"$3/root/usr/bin/weir" version | grep " ${commit:0:12} "`
	cmd := exec.Command("bash", "-c", script, "-", here, filepath.Join(dir, "there"),
		filepath.Join(dir, "again"))
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
