package arch

import (
	"flag"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/releases"
)

var release = flag.String("release", "", "write the API of this release, such as 0.2.0")

// TestAPI: what a release exports is there in every later version
// (docs/design/0009-compatibility.md). A list is written once, when its release is made:
//
//	go test ./internal/arch -run TestAPI -release 0.2.0
func TestAPI(t *testing.T) {
	now, err := API("../..")
	if err != nil {
		t.Fatal(err)
	}
	releases.Check(t, "testdata/api", now, 500, *release)
}

func TestAPIListsDeclarations(t *testing.T) {
	root := t.TempDir()
	write(t, root, "udp/a_linux.go", `package udp
type T struct { A, b int; C func(x int) error }
func (t *T) M(a, b int) (n int, err error) { return }
func (t T) m() {}
type hidden struct{ X int }
func (hidden) Y() {}
type I interface { Do(what string) error }
const ( One = iota; two )
type Alias = T
func F[E any](e E) {}
`)
	write(t, root, "udp/a_other.go", "package udp\nfunc F[E any](other E) {}\n")
	write(t, root, "overlay/b.go", "package overlay\nfunc NotPromised() {}\n")
	write(t, root, "udp/a_test.go", "package udp\nfunc Helper() {}\n")
	want := []string{"udp: const One", "udp: func (*T) M(int, int) (int, error)",
		"udp: func F[E any](E)", "udp: type Alias = T", "udp: type I interface",
		"udp: type I interface, Do func(string) error", "udp: type T struct",
		"udp: type T struct, A int", "udp: type T struct, C func(int) error"}
	if got, err := API(root); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\ngot  %q\nwant %q", err, got, want)
	}
}

// TestPagesNameTheLibraries: the pages that say which packages are libraries have those of
// libraries.txt.
func TestPagesNameTheLibraries(t *testing.T) {
	page := func(name string) string {
		t.Helper()
		content, err := read(root, name)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	_, row, _ := strings.Cut(page("docs/design/0009-compatibility.md"), "\n| libraries (")
	row, _, _ = strings.Cut(row, ")")
	want := "`" + strings.Join(libraries, "`, `") + "`"
	if row != want {
		t.Errorf("docs/design/0009-compatibility.md names %s, want %s", row, want)
	}
	marked := map[string]bool{} // by the packages that have an entry
	_, list, _ := strings.Cut(page("docs/design/0001-weir.md"), "## 1. The packages\n\n```\n")
	list, _, _ = strings.Cut(list, "```\n")
	name := ""
	for line := range strings.Lines(list) {
		if words := strings.Fields(line); len(words) > 0 && line[0] != ' ' {
			name = strings.TrimRight(words[0], "/")
		}
		marked[name] = marked[name] || strings.Contains(line, "(public library)")
	}
	for name, is := range marked {
		if is != slices.Contains(libraries, name) {
			t.Errorf("docs/design/0001-weir.md: %s is a public library: %v, want %v", name, is, !is)
		}
	}
	for _, name := range libraries {
		above := name // the package, or the nearest one above it, that has an entry
		for _, entry := marked[above]; !entry && above != "."; _, entry = marked[above] {
			above = path.Dir(above)
		}
		if !marked[above] {
			t.Errorf("docs/design/0001-weir.md does not say that %s is a public library", name)
		}
	}
}
