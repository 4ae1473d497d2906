package rule

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzParse feeds any text: what loads must print, load again as the same, and compile; what does
// not must give errors with places that lie in the text.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*.rules", "../examples/*.rules"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, path := range files {
			f.Add(readFile(f, path))
		}
	}
	for _, a := range badFiles(f) {
		for _, file := range a.Files {
			if strings.HasSuffix(file.Name, ".rules") {
				f.Add(string(file.Data))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseFile("fuzz", text, nil)
		if err != nil {
			checkErrors(t, text, err)
			return
		}
		printed := printRuleset(s)
		again, err := ParseFile("printed", printed, nil)
		if err != nil {
			t.Fatalf("%q prints as %q: %v", text, printed, err)
		}
		if got, want := dumpRuleset(again), dumpRuleset(s); got != want {
			t.Fatalf("%q prints as %q: %s", text, printed, firstDifference(got, want))
		}
		if len(s.Rules) > 20 {
			return
		}
		if _, err := Compile(s, CompileOptions{}); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

func checkErrors(t *testing.T, text string, err error) {
	t.Helper()
	var errs Errors
	if !errors.As(err, &errs) || len(errs) == 0 || len(errs) > MaxErrors {
		t.Fatalf("%q: %v", text, err)
	}
	lines := strings.Split(text, "\n")
	for _, e := range errs {
		if e.Pos.Line < 1 || e.Pos.Line > len(lines) || e.Pos.Col < 1 || e.Pos.End < e.Pos.Col ||
			e.Pos.End > len(e.Text)+1 || e.Msg == "" {
			t.Fatalf("%q: error %+v is out of place", text, e)
		}
		report := e.Report()
		if strings.ContainsFunc(report, func(r rune) bool {
			return r < ' ' && r != '\n' || r == 0x7f || r == 0x9b
		}) {
			t.Fatalf("%q: report %q could steer a terminal", text, report)
		}
	}
}
