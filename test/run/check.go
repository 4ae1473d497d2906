package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// check fails if one of the tests in the sources passed in neither of the recorded runs: it was
// skipped, a run was not complete, or the two leave something out.
func check(modules []string, records string) error {
	passed := map[testName]bool{}
	for _, kind := range []string{"short", "long"} {
		text, err := os.ReadFile(filepath.Join(records, kind))
		if err != nil {
			return fmt.Errorf("no record of a run, which make test and make test-long write: %w",
				err)
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 4 && f[0] == "pass" {
				passed[testName{f[1], f[2]}] = true
			}
		}
	}
	var missing []error
	for _, dir := range modules {
		tests, err := declaredTests(dir)
		if err != nil {
			return err
		}
		if len(tests) == 0 {
			return fmt.Errorf("no tests in %s", dir)
		}
		for _, t := range tests {
			if !passed[t] {
				missing = append(missing, fmt.Errorf("%s passed in neither run", t))
			}
		}
	}
	return errors.Join(missing...)
}

// withLongTests lists the packages of a module that have tests of the long run.
func withLongTests(dir string) (packages []string, err error) {
	tests, err := declaredTests(dir)
	if err != nil {
		return nil, err
	}
	long := regexp.MustCompile(longTests)
	for _, t := range tests {
		if long.MatchString(t.name) && !slices.Contains(packages, t.pkg) {
			packages = append(packages, t.pkg)
		}
	}
	return packages, nil
}

// declared finds the functions that go test calls. Seeds of a fuzz target are tests, too.
var declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z0-9_]\w*)\(\w+ \*testing\.[TF]\)`)

// declaredTests lists the tests of a module that this machine can run, in the order of their
// packages.
func declaredTests(dir string) (tests []testName, err error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w", dir, err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Dir           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return tests, nil
		} else if err != nil {
			return nil, err
		}
		for _, file := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				return nil, err
			}
			for _, m := range declared.FindAllSubmatch(text, -1) {
				tests = append(tests, testName{p.ImportPath, string(m[1])})
			}
		}
	}
}
