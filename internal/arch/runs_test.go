package arch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRuns(t *testing.T) {
	found, err := Runs(root)
	complain(t, found, err)
}

func TestRunsFindsOtherDivisions(t *testing.T) {
	dir := t.TempDir()
	err := os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(`package a
import ("os"; "testing")
func TestA(t *testing.T) {
	if testing.Short() {
		t.Skip()
	}
	if os.Getenv("WEIR_LONG") != "" || os.Getenv("WEIR_CI") != "" || os.Getenv("HOME") != "" {
		return
	}
	_, _ = os.LookupEnv("WEIR_ROUNDS")
}
`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	found, err := Runs(dir)
	expect(t, found, err, "a_test.go:4: testing.Short:", "a_test.go:7: WEIR_LONG:",
		"a_test.go:10: WEIR_ROUNDS:")
}

// builds are the promises that are about building packages, which takes half a minute: `make
// test-long` alone holds them.
var builds = []string{"| The package of a commit has the same bytes"}

// TestPromisesAreTestedBeforeACommit: of the tests of each promise of SECURITY.md one is in `make
// test`.
func TestPromisesAreTestedBeforeACommit(t *testing.T) {
	content, err := read(root, "SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	found := onlyLong(string(content))
	for _, line := range found {
		if !slices.ContainsFunc(builds, func(b string) bool {
			return strings.HasPrefix(line, b)
		}) {
			t.Errorf("SECURITY.md has a promise that make test does not test: %s", line)
		}
	}
	if len(found) < len(builds) {
		t.Errorf("builds names %d promises, %d are held by make test-long alone", len(builds),
			len(found))
	}
}

func TestOnlyLongFindsPromises(t *testing.T) {
	const page = "| promise | tests |\n| Held. | `TestLongA`, `FuzzParse` |\n" +
		"| Held late. | `TestLongA`, `TestLongB` |\n| Held too. | `TestLongestWalk` |\n"
	if found := onlyLong(page); !slices.Equal(found,
		[]string{"| Held late. | `TestLongA`, `TestLongB` |"}) {
		t.Errorf("found %q", found)
	}
}
