package test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestLongRPM: the RPM package installs in a clean root, runs, is upgraded under a running node,
// and leaves what the Debian package leaves at a removal.
func TestLongRPM(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	need(t, "unshare", "man")
	_, old := ownPackages(t)
	dir := t.TempDir()
	next, err := buildPackages("", "rpm", dir, "99")
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("unshare", "-mn", "testdata/deb/clean-root", root, old,
		next[0]).CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "all well") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestLongPackagesForARM64: the packages of the other machine have its binaries and otherwise the
// files of this one's.
func TestLongPackagesForARM64(t *testing.T) {
	t.Parallel()
	need(t, "bash", "cpio")
	here, _ := ownPackages(t)
	dir := t.TempDir()
	shell := func(script string, args ...string) string {
		t.Helper()
		out, err := exec.Command("bash", append([]string{"-ec", script, "-"}, args...)...).Output()
		if err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		return strings.TrimSpace(string(out))
	}
	binaries := func(root string) {
		t.Helper()
		for _, name := range []string{"weir", "weir-store"} {
			f, err := elf.Open(filepath.Join(root, "usr/bin", name))
			if err != nil {
				t.Fatal(err)
			}
			if f.Machine != elf.EM_AARCH64 || len(f.Progs) == 0 {
				t.Errorf("%s: %s is for %v", root, name, f.Machine)
			}
			if libs, err := f.ImportedLibraries(); err == nil && len(libs) > 0 {
				t.Errorf("%s: %s needs %v", root, name, libs)
			}
			f.Close()
		}
	}

	others, err := buildPackages("arm64", "deb,rpm", dir)
	if err != nil {
		t.Fatal(err)
	}
	deb, rpm := others[0], others[1]
	if arch := shell(`dpkg-deb -f "$1" Architecture`, deb); arch != "arm64" {
		t.Errorf("%s is for %s", deb, arch)
	}
	const list = `dpkg-deb --fsys-tarfile "$1" | tar -t | sed 's,^\.,,' | grep '[^/]$' | sort`
	files := shell(list, here)
	if other := shell(list, deb); other != files {
		t.Errorf("the package for arm64 has %s\nthat for this machine %s", other, files)
	}
	shell(`dpkg-deb -x "$1" "$2"`, deb, filepath.Join(dir, "deb"))
	binaries(filepath.Join(dir, "deb"))

	if arch := shell(`rpm -qp --qf '%{ARCH}' "$1"`, rpm); arch != "aarch64" {
		t.Errorf("%s is for %s", rpm, arch)
	}
	places := strings.NewReplacer("vendor-completions/_weir", "site-functions/_weir",
		"/usr/share/doc/weir/copyright", "/usr/share/licenses/weir/LICENSE",
		"/usr/share/doc/weir/changelog.gz", "", "/usr/share/lintian/overrides/weir", "")
	want := strings.Fields(places.Replace(files))
	got := strings.Fields(shell(`rpm -qp --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' "$1" |
		sed -n '/^d/!s/^[^ ]* //p'`, rpm))
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the RPM package has %q\nthe Debian package %q", got, want)
	}
	unpacked := filepath.Join(dir, "rpm")
	shell(`mkdir "$2" && rpm2cpio "$1" | (cd "$2" && cpio --quiet -id)`, rpm, unpacked)
	binaries(unpacked)
}
