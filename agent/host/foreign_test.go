package host

import (
	"errors"
	"slices"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall/kernel"
)

// foreignEngine is an engine whose kernel lists what a test says.
type foreignEngine struct {
	lateEngine
	all []kernel.Foreign
	err error
}

func (e *foreignEngine) Foreign() ([]kernel.Foreign, error) { return e.all, e.err }

// TestForeignWhileTheKernelFails: a look that finds a part of the programs adds to what is known,
// and takes nothing back. The next complete look does.
func TestForeignWhileTheKernelFails(t *testing.T) {
	e := &foreignEngine{}
	h := hooksOf(&e.lateEngine, &Router{})
	h.config.Engine = e
	h.attached = map[uint32]string{2: "tcx", 3: "tcx"}
	first := kernel.Foreign{Index: 2, Hook: "tcx", Name: "first", Program: 7, Link: 70}
	other := kernel.Foreign{Index: 3, Hook: "tcx", Program: 8, Link: 80, Weir: true}
	gone := kernel.Foreign{Index: 4, Hook: "tcx", Program: 9, Link: 90, Weir: true}
	come := kernel.Foreign{Index: 3, Hook: "xdp", Name: "come", Program: 10}
	unnamed := first
	unnamed.Name = ""
	failed := errors.New("too many open files")
	for _, c := range []struct {
		what    string
		all     []kernel.Foreign
		err     error
		before  [2][]string // of the interfaces 2 and 3
		problem string
	}{
		{"all", []kernel.Foreign{first, other}, nil, [2][]string{{"first"}, nil},
			"bpftool link detach id 80"},
		{"nothing could be listed", nil, failed, [2][]string{{"first"}, nil},
			"bpftool link detach id 80"},
		{"a part", []kernel.Foreign{unnamed, come}, failed, [2][]string{{"first"}, {"come"}},
			"bpftool link detach id 80"},
		{"another part", []kernel.Foreign{other}, failed, [2][]string{{"first"}, {"come"}},
			"bpftool link detach id 80"},
		{"an interface that goes", []kernel.Foreign{first, gone}, nil, [2][]string{{"first"}, nil},
			"bpftool link detach id 90"},
		{"it is gone", nil, failed, [2][]string{{"first"}, nil}, ""},
		{"all again", []kernel.Foreign{come}, nil, [2][]string{nil, {"come"}}, ""},
	} {
		e.all, e.err = c.all, c.err
		h.NoteForeign()
		for i, want := range c.before {
			var got []string
			for _, b := range h.before[uint32(i+2)] {
				got = append(got, b.Name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: before interface %d %q, not %q", c.what, i+2, got, want)
			}
		}
		is := slices.ContainsFunc(h.config.Problems.All(), func(p api.Problem) bool {
			return c.problem != "" && p.Advice[max(0, len(p.Advice)-len(c.problem)):] == c.problem
		})
		if n := len(h.config.Problems.All()); is != (c.problem != "") ||
			(n > 0) != (is || c.err != nil) {
			t.Errorf("%s: problems %+v", c.what, h.config.Problems.All())
		}
	}
}
