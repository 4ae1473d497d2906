package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNamesDivide: a word that only begins with Long is none of the mark.
func TestNamesDivide(t *testing.T) {
	long := regexp.MustCompile(longTests)
	for name, want := range map[string]bool{"TestLongKills": true, "TestLong100Kills": true,
		"TestLongestWalk": false, "TestLong": false, "TestKillsTakeLong": false} {
		if long.MatchString(name) != want {
			t.Errorf("%s is a long test: %v", name, !want)
		}
	}
}

// events are what go test -json prints for two packages: one whose tests pass, fail and skip, and
// one whose program ends in a test.
const events = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"    a_test.go:1: good news\n"}
{"Action":"output","Package":"p","Test":"TestBad/part","Output":"    a_test.go:2: bad news\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"--- PASS: TestGood (1.00s)\n"}
{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":1}
{"Action":"output","Package":"p","Test":"TestBad","Output":"--- FAIL: TestBad (7.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestBad/part","Elapsed":7}
{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":7}
{"Action":"skip","Package":"p","Test":"TestAbsent","Elapsed":0}
{"Action":"pass","Package":"p","Test":"TestBad","Elapsed":1}
{"Action":"output","Package":"p","Output":"FAIL\tp\t8.0s\n"}
{"Action":"fail","Package":"p","Elapsed":8}
{"Action":"build-output","ImportPath":"q","Output":"q.go:1: a mistake\n"}
{"Action":"output","Package":"q","Test":"TestPanic","Output":"panic: it ends here\n"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t0.1s\n"}
{"Action":"fail","Package":"q","Elapsed":0.1}
`

// TestReport: what failed is printed, with what it had printed itself, also when its program ended
// early; what passed is not. The record has every test that ended.
func TestReport(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	r.summary(0)
	const want = `    a_test.go:2: bad news
--- FAIL: TestBad (7.00s)
FAIL	p	8.0s
q.go:1: a mistake
FAIL	q	0.1s
panic: it ends here
1 tests passed, 1 failed, 1 skipped, in 0 s
   7.0 s p TestBad
`
	if out.String() != want {
		t.Errorf("printed\n%s\nnot\n%s", out.String(), want)
	}
	file := filepath.Join(t.TempDir(), "records", "short")
	if err := r.save(file); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) !=
		"skip p TestAbsent 0.00\nfail p TestBad 7.00\npass p TestGood 1.00\n" {
		t.Errorf("recorded %q, %v", text, err)
	}
}

// TestEachTestPassed: check names the tests that passed in neither run: those that no run had, and
// those that were skipped or failed.
func TestEachTestPassed(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module m\n\ngo 1.26\n")
	write("a_test.go", `package m
func TestA(t *testing.T) {}
func TestLongB(t *testing.T) {}
func helper(t *testing.T) {}
func FuzzC(f *testing.F) {}
func TestMain(m *testing.M) {}

const text = "func TestQuoted(t *testing.T) {}"

/*
func TestRemoved(t *testing.T) {}
*/
`)
	write("b_windows_test.go", "package m\nfunc TestElsewhere(t *testing.T) {}\n")
	if tests, err := declaredTests(dir); err != nil || !slices.Equal(tests,
		[]testName{{"m", "TestA"}, {"m", "TestLongB"}, {"m", "FuzzC"}}) {
		t.Fatalf("the module has %v, %v", tests, err)
	}
	if packages, err := withLongTests(dir); err != nil || !slices.Equal(packages, []string{"m"}) {
		t.Errorf("packages with long tests: %v, %v", packages, err)
	}
	if err := check([]string{dir}, dir); err == nil {
		t.Error("no error without a record")
	}
	write("short", "pass m TestA 0.00\nskip m FuzzC 0.00\n")
	write("long", "fail m TestLongB 1.00\n")
	err := check([]string{dir}, dir)
	if err == nil || err.Error() !=
		"m TestLongB passed in neither run\nm FuzzC passed in neither run" {
		t.Errorf("error %v", err)
	}
	write("long", "pass m TestLongB 1.00\npass m FuzzC 1.00\n")
	if err := check([]string{dir}, dir); err != nil {
		t.Error(err)
	}
}

// TestUsage: what is not a run is refused.
func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"fast"}, {"check", "short"}} {
		if err := run(args, nil); err == nil || !strings.Contains(err.Error(), "usage") {
			t.Errorf("%v: error %v", args, err)
		}
	}
}
