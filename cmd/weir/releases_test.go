package main

import (
	"flag"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weirnet/weir/internal/releases"
)

var newRelease = flag.String("release", "", "write the list of this release, such as 0.2.0")

// userVisible lists the commands, their flags and the metrics of this version.
func userVisible(t *testing.T) (lines []string) {
	t.Helper()
	top := newCommand(t.Context(), nil, io.Discard, io.Discard)
	for _, v := range commands() {
		cmd, _, err := top.Find(strings.Fields(v.name))
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, "command "+v.name)
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

// TestReleasesKeepCommandsAndMetrics: commands, flags and metrics of a release are there in every
// later version (docs/design/0009-compatibility.md). A list is written once, when its release is
// made:
//
//	go test ./cmd/weir -run TestReleasesKeep -release 0.2.0
func TestReleasesKeepCommandsAndMetrics(t *testing.T) {
	releases.Check(t, "testdata/releases", userVisible(t), 150, *newRelease)
}
