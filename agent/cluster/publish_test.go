package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/store/cluster"
)

// TestManyPods: a host with more pods than a transaction has bytes for, and even more than it may
// have chunks, writes all that it may.
func TestManyPods(t *testing.T) {
	const most = 128 * cluster.MaxChunkPods
	l := newLab(t)
	l.join("b", 2, "10.0.0.0/16")
	b := l.start("b", t.TempDir(), 2, newParts(), false)
	var pods []cluster.Pod
	for i := range most + 100 {
		p := pod(strings.Repeat("p", 200)+fmt.Sprint(i),
			fmt.Sprintf("10.0.%d.%d", i>>8, i&255))
		p.Labels["app"] = strings.Repeat("x", 250)
		pods = append(pods, p)
	}
	b.SetPods(pods)
	written := func() (n int) {
		s, err := l.model.Read(t.Context(), cluster.PodsTree, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range s.Entries {
			of, err := cluster.Decode[cluster.Pods](e.Value)
			if err != nil {
				t.Fatal(err)
			}
			n += len(of.Pods)
		}
		return n
	}
	nstest.Eventually(t, fmt.Sprint(most, " pods are written"), func() bool {
		return written() == most
	})
	nstest.Eventually(t, "the report is written", func() bool { return l.reportOf("b").Weir != "" })
}

// TestShort: a report with the text of any error is one that others can read.
func TestShort(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 999) + "é", "a \xff line\nand\x1b[2J", ""} {
		got := short(errors.New(text))
		if !utf8.ValidString(got) || len(got) > 1024 || strings.ContainsAny(got, "\n\x1b") {
			t.Errorf("%q", got)
		}
		n := cluster.Number{Epoch: 1, Count: 1}
		value, err := cluster.Encode(&cluster.Report{Refused: &n, Why: got})
		if err == nil {
			_, err = cluster.Decode[cluster.Report](value)
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
