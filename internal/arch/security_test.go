package arch

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unproved lists the lines of tables whose last column names no test. TestDocsNameWhatExists finds
// names of tests that do not exist.
func unproved(page string) (found []string) {
	test := regexp.MustCompile("`(?:Test|Fuzz)[A-Z0-9]\\w*`")
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.Trim(line, "|- ") == "" ||
			strings.TrimSpace(cells[0]) == "promise" {
			continue
		}
		if len(cells) != 2 || !test.MatchString(cells[1]) {
			found = append(found, line)
		}
	}
	return found
}

// TestPromisesHaveTests: each promise of SECURITY.md names the tests that hold it.
func TestPromisesHaveTests(t *testing.T) {
	content, err := read("../..", "SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range unproved(string(content)) {
		t.Errorf("SECURITY.md promises without a test: %s", line)
	}
	if n := strings.Count(string(content), "\n| promise | tests |\n"); n < 8 {
		t.Errorf("SECURITY.md has %d tables of promises", n)
	}
}

func TestUnprovedFindsEveryPromise(t *testing.T) {
	const page = "| promise | tests |\n| --- | --- |\n| Held. | `TestDiffer`, `FuzzParse` |\n" +
		"| Nothing. | |\n| A word. | Testing |\n| `TestDiffer` |\n"
	want := []string{"| Nothing. | |", "| A word. | Testing |", "| `TestDiffer` |"}
	if found := unproved(page); !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
