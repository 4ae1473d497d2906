package rule

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestRuleFilesOfReleases: rule files of each release load in every later version, and mean what
// they meant: their printed form is the same. An archive is written when its release is made, and
// never changes afterwards.
func TestRuleFilesOfReleases(t *testing.T) {
	archives, err := filepath.Glob("testdata/releases/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no releases: %v", err)
	}
	for _, path := range archives {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Files) < 20 || len(a.Files)%2 != 0 {
			t.Fatalf("%s has %d files", path, len(a.Files))
		}
		for i := 0; i < len(a.Files); i += 2 {
			file, printed := &a.Files[i], &a.Files[i+1]
			if printed.Name != strings.TrimSuffix(file.Name, ".rules")+".printed" {
				t.Fatalf("%s: %s follows %s", path, printed.Name, file.Name)
			}
			s, err := ParseFile(file.Name, string(file.Data), nil)
			if err != nil {
				t.Errorf("%s: %s does not load any more: %v", path, file.Name, err)
				continue
			}
			if _, err := Compile(s, CompileOptions{Strict: true}); err != nil &&
				!strings.Contains(err.Error(), "table") {
				t.Errorf("%s: %s does not compile any more: %v", path, file.Name, err)
			}
			if got := printRuleset(s); got != string(printed.Data) {
				t.Errorf("%s: %s means something else: %s", path, file.Name,
					firstDifference(got, string(printed.Data)))
			}
		}
	}
}
