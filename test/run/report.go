package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is a line of `go test -json` (`go doc test2json`, and `go help buildjson`).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// testName is a test with the path of its package.
type testName struct{ pkg, name string }

func (t testName) String() string { return t.pkg + " " + t.name }

// report prints what a reader of a run has to know, and keeps what became of each test. Several
// goroutines may read events.
type report struct {
	mu      sync.Mutex // guards all
	out     io.Writer
	printed map[testName]*bytes.Buffer // by tests that run, with their parts
	results map[testName]event         // how each test ended
}

func newReport(out io.Writer) *report {
	return &report{out: out, printed: map[testName]*bytes.Buffer{},
		results: map[testName]event{}}
}

func (r *report) read(events io.Reader) error {
	for d := json.NewDecoder(events); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the output of go test: %w", err)
		}
		r.add(e)
	}
}

func (r *report) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, _, part := strings.Cut(e.Test, "/")
	t := testName{e.Package, name}
	switch {
	case e.Action == "build-output":
		io.WriteString(r.out, e.Output)
	case e.Action == "output" && name == "":
		if e.Output != "PASS\n" && !strings.Contains(e.Output, "[no test files]") {
			io.WriteString(r.out, e.Output)
		}
	case e.Action == "output":
		if r.printed[t] == nil {
			r.printed[t] = &bytes.Buffer{}
		}
		if !strings.HasPrefix(e.Output, "=== ") {
			r.printed[t].WriteString(e.Output)
		}
	case e.Action == "fail" && name == "":
		for t := range r.printed { // what ran when the whole program ended
			if t.pkg == e.Package {
				r.print(t)
			}
		}
	case !part && slices.Contains([]string{"pass", "skip", "fail"}, e.Action) && name != "":
		if e.Action == "fail" {
			r.print(t)
		}
		delete(r.printed, t)
		if r.results[t].Action != "fail" { // of those of -count
			r.results[t] = e
		}
	}
}

// print shows what a test printed. What it has not shown then stays in no buffer.
func (r *report) print(t testName) {
	r.printed[t].WriteTo(r.out)
	delete(r.printed, t)
}

// mostSlow is how many of the slowest tests the summary names, slow how long these take at least.
const (
	mostSlow = 10
	slow     = 5 // seconds
)

// summary prints how many tests there were, and which took longest.
func (r *report) summary(took time.Duration) {
	count := map[string]int{}
	for _, e := range r.results {
		count[e.Action]++
	}
	fmt.Fprintf(r.out, "%d tests passed, %d failed, %d skipped, in %.0f s\n", count["pass"],
		count["fail"], count["skip"], took.Seconds())
	slowest := slices.SortedFunc(maps.Values(r.results), func(a, b event) int {
		return int(1000 * (b.Elapsed - a.Elapsed))
	})
	for _, e := range slowest[:min(len(slowest), mostSlow)] {
		if e.Elapsed >= slow {
			fmt.Fprintf(r.out, "%6.1f s %s %s\n", e.Elapsed, e.Package, e.Test)
		}
	}
}

// save writes a line for each test: what became of it, its package, its name and its seconds.
func (r *report) save(file string) error {
	var b bytes.Buffer
	for _, t := range slices.SortedFunc(maps.Keys(r.results), compareNames) {
		fmt.Fprintf(&b, "%s %s %.2f\n", r.results[t].Action, t, r.results[t].Elapsed)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

func compareNames(a, b testName) int {
	return strings.Compare(a.String(), b.String())
}
