package nstest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// recorder is a TB that notes how a test ended.
type recorder struct {
	skipped, failed string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Cleanup(func())            {}
func (r *recorder) Errorf(f string, a ...any) { r.failed = fmt.Sprintf(f, a...) }
func (r *recorder) Fatalf(f string, a ...any) { r.failed = fmt.Sprintf(f, a...) }
func (r *recorder) Skipf(f string, a ...any)  { r.skipped = fmt.Sprintf(f, a...) }

func TestRootSkipsLoudlyAndFailsWhereSkippingIsForbidden(t *testing.T) {
	if complaint := runUnprivileged(t); complaint != "" {
		t.Errorf("without root: %s", complaint)
	}
}

// checkSkips wants to run without rights.
func checkSkips(complain func(string, ...any)) {
	for _, ci := range []string{"", "1"} {
		os.Setenv("WEIR_CI", ci)
		var r recorder
		RequireRoot(&r)
		said := r.skipped + r.failed
		if (ci == "1") != (r.failed != "") || (ci == "") != (r.skipped != "") ||
			!strings.Contains(said, "NOT TESTED: needs root") {
			complain("WEIR_CI=%q: %+v", ci, r)
		}
	}
}

func TestOrphaned(t *testing.T) {
	own, err := ownName("x-y")
	if err != nil {
		t.Fatal(err)
	}
	start, err := startTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		own: false,
		fmt.Sprintf("weir-%d-%d-1-a", os.Getpid(), start+1): true, // the id was used again
		fmt.Sprintf("weir-%d-%d-1-a", 1<<30, start):         true,
		"weir-1-x-1-a":  false,
		"weir--1-1-1-a": false,
		"weir-0-1-1-a":  false,
		"weir-prod":     false,
		"other":         false,
	} {
		if got := orphaned(name); got != want {
			t.Errorf("orphaned(%q) = %v, want %v", name, got, want)
		}
	}
}
