package main

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

var newRelease = flag.String("release", "", "write the list of this release, such as 0.2.0")

// userVisible lists the verbs, their flags and the metrics of this version.
func userVisible(t *testing.T) (lines []string) {
	t.Helper()
	top := newCommand(t.Context(), nil, io.Discard, io.Discard)
	for _, v := range verbs() {
		cmd, _, err := top.Find(strings.Fields(v.name))
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, "verb "+v.name)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			line := "flag " + v.name + " --" + f.Name + " " + f.Value.Type()
			if f.Shorthand != "" {
				line += ", -" + f.Shorthand
			}
			lines = append(lines, line)
		})
	}
	// TestMetricsAreAsDocumented compares the page with what a node serves.
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile("(?m)^\\| `([a-z_]+(?:\\{[a-z,_]+\\})?)` \\| (?:counter|gauge) \\|")
	for _, m := range metric.FindAllStringSubmatch(string(page), -1) {
		lines = append(lines, "metric "+m[1])
	}
	slices.Sort(lines)
	return lines
}

// TestReleasesKeepVerbsAndMetrics: verbs, flags and metrics of a release are there in every later
// version (docs/design/0009-compatibility.md). A list is written once, when its release is made:
//
//	go test ./cmd/weir -run TestReleasesKeep -release 0.2.0
func TestReleasesKeepVerbsAndMetrics(t *testing.T) {
	now := userVisible(t)
	if *newRelease != "" {
		path := filepath.Join("testdata", "releases", *newRelease+".txt")
		if err := os.WriteFile(path, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lists, err := filepath.Glob("testdata/releases/*.txt")
	if err != nil || len(lists) == 0 {
		t.Fatalf("no releases: %v", err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		promised := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(promised) < 150 {
			t.Errorf("%s promises %d lines", list, len(promised))
		}
		for _, line := range promised {
			if _, ok := slices.BinarySearch(now, line); !ok {
				t.Errorf("%s promises %q, which is gone or has changed. Before that release is "+
					"made, write its list again (-release); afterwards bring it back", list, line)
			}
		}
	}
}
