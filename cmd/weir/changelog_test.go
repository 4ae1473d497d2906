package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// sectionOf returns the heading of a version in a changelog, without its number.
func sectionOf(changelog, version string) (rest string, ok bool) {
	for line := range strings.Lines(changelog) {
		if rest, ok = strings.CutPrefix(line, "## ["+version+"]"); ok {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

// TestChangelogHasTheRelease: the version that is being made has its section, which has a date as
// soon as the version is one that is given to users.
func TestChangelogHasTheRelease(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	if problem := releaseProblem(string(text), release); problem != "" {
		t.Error(problem)
	}
	const log = "# Changelog\n\n## [0.2.0] - not yet released\n\n## [0.1.0] - 2026-12-01\n"
	for version, good := range map[string]bool{"0.2.0-dev": true, "0.2.0": false, "0.1.0": true,
		"0.1.0-dev": false, "0.3.0-dev": false} {
		if problem := releaseProblem(log, version); (problem == "") != good {
			t.Errorf("%s: %q", version, problem)
		}
	}
}

// releaseProblem says what a changelog lacks for a version.
func releaseProblem(changelog, version string) string {
	number, dev := strings.CutSuffix(version, "-dev")
	heading, ok := sectionOf(changelog, number)
	dated := regexp.MustCompile(`^- 20\d\d-\d\d-\d\d$`).MatchString(heading)
	switch {
	case !ok:
		return "CHANGELOG.md has no section [" + number + "]"
	case dev && dated:
		return "CHANGELOG.md says that " + number + " has been released, the source is " + version
	case !dev && !dated:
		return "the section [" + number + "] of CHANGELOG.md has no date"
	}
	return ""
}
