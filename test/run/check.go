package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// check fails if one of the tests in the sources passed in neither of the recorded runs. It was
// skipped then, a run was not complete, or the two leave something out.
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

// testNames are those of functions that go test calls. Seeds of a fuzz target are tests, too.
var testNames = regexp.MustCompile(`^(Test|Fuzz)[A-Z0-9_]`)

// inFile lists the tests that a file declares.
func inFile(name string) (tests []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !testNames.MatchString(f.Name.Name) ||
			len(f.Type.Params.List) != 1 {
			continue
		}
		pointer, ok := f.Type.Params.List[0].Type.(*ast.StarExpr)
		if !ok {
			continue
		}
		if of, ok := pointer.X.(*ast.SelectorExpr); ok && of.Sel.Name != "M" { // of TestMain
			tests = append(tests, f.Name.Name)
		}
	}
	return tests, nil
}

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
			names, err := inFile(filepath.Join(p.Dir, file))
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				tests = append(tests, testName{p.ImportPath, name})
			}
		}
	}
}
