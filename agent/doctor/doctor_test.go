package doctor

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

// TestProbeFindsWhatWorks runs on a machine that is known to be able, since the other root tests
// run there: whatever they use has to be found.
func TestProbeFindsWhatWorks(t *testing.T) {
	nstest.RequireRoot(t)
	r := Probe(t.TempDir())
	if !r.Able {
		t.Errorf("not able: %+v", r)
	}
	for _, f := range r.Findings {
		if f.Needed && !f.Present {
			t.Errorf("%s: %s", f.Name, f.Detail)
		}
		if f.Name == "namespaces" && !f.Present {
			t.Errorf("namespaces: %s, and yet tests make them", f.Detail)
		}
	}
}

func TestProbeLeavesNothing(t *testing.T) {
	nstest.RequireRoot(t)
	Probe(t.TempDir()) // the packages below may keep something the first time
	before, _ := os.ReadDir("/proc/self/fd")
	Probe(t.TempDir())
	after, _ := os.ReadDir("/proc/self/fd")
	if len(after) > len(before) {
		t.Errorf("%d descriptors before, %d after", len(before), len(after))
	}
}

func TestEvaluate(t *testing.T) {
	all := func() Report {
		return Report{Able: true, Findings: []Finding{
			{Name: "bpf maps", Needed: true, Present: true}, {Name: checkTCX, Present: true},
			{Name: checkClsact, Present: true},
			{Name: "XDP", Present: true}}}
	}
	for _, c := range []struct {
		missing []int
		able    bool
	}{
		{nil, true}, {[]int{0}, false}, {[]int{1}, true}, {[]int{2}, true}, {[]int{1, 2}, false},
		{[]int{3}, true},
	} {
		r := all()
		for _, i := range c.missing {
			r.Findings[i].Present = false
		}
		if r.decide(); r.Able != c.able {
			t.Errorf("without %v: able is %v", c.missing, r.Able)
		}
	}
}

// TestNetlinkErrorIsSeen: a kernel that lacks a feature answers the request with an error, and the
// check fails with it.
func TestNetlinkErrorIsSeen(t *testing.T) {
	nstest.RequireRoot(t)
	const absent = 77
	_, err := inEmptyNamespace(func() (string, error) { return "", addClsact(absent) })
	if !errors.Is(err, unix.ENODEV) {
		t.Errorf("a qdisc for an interface that does not exist: %v, want ENODEV", err)
	}
}
