package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/atomicfile/powercut"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// diskHangs reports whether the writer waits for the disk.
func (r *running) diskHangs() bool {
	r.Service.mu.Lock()
	defer r.Service.mu.Unlock()
	u := &r.unwritten
	return u.count > 0 && !u.writing.IsZero() && time.Since(u.writing) > syncEvery/2
}

// awaitsDisk reports whether something has waited for the disk since it hangs.
func (r *running) awaitsDisk() bool {
	r.Service.mu.Lock()
	defer r.Service.mu.Unlock()
	return len(r.unwritten.wait) > 0
}

func (r *running) hasProblem(text string) bool {
	for _, p := range r.config.Problems.All() {
		if strings.Contains(p.What, text) {
			return true
		}
	}
	return false
}

// TestDiskThatHangs: it delays neither steps nor status, nor a version of the rules. What the host
// answers as enforced is on the disk, so that the report waits for it.
func TestDiskThatHangs(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	n := l.join("b", 2, "10.0.2.0/24")
	drive := powercut.New(t)
	dir := filepath.Join(drive.Dir, "store")
	a := l.start("a", dir, 1, newParts(), false)
	b := l.start("b", t.TempDir(), 2, newParts(), false)
	l.load("add 1 allow tcp from any to any 1\n", 0)
	first := l.head.Number
	nstest.Eventually(t, "the first version is reported", func() bool {
		return l.reportOf("a").Enforced == first
	})
	nstest.Eventually(t, "b is a peer", func() bool {
		a.parts.mu.Lock()
		defer a.parts.mu.Unlock()
		return a.parts.hosts["b"].Node != nil
	})

	release := drive.Hang(t) // what waits for the disk does not come before release
	within := func(what string, ok func() bool) {
		t.Helper()
		nstest.Eventually(t, what, ok)
		if a.awaitsDisk() {
			t.Errorf("%s: something has waited for the disk", what)
		}
	}
	b.SetPods([]cluster.Pod{pod("p", "10.0.2.1")})
	within("a pod of b", func() bool { return a.hasLabel(web("10.0.2.1")) })
	nstest.Eventually(t, "the disk is used", a.diskHangs)
	b.SetPods([]cluster.Pod{pod("p", "10.0.2.2")})
	within("a pod of b, while the disk hangs", func() bool {
		return a.hasLabel(web("10.0.2.2"))
	})
	within("status", func() bool { return a.Status().Revision > 0 })
	next := l.load("add 2 allow tcp from any to any 2\n", 0)
	within("a version", func() bool { return a.parts.now() == next })
	l.commit(store.Txn{Put: []store.Entry{l.entry(cluster.RemovedTree+"node/b",
		&cluster.RemovalRecord{Serials: []cluster.Serial{n.Serial}})}, Delete: []string{
		cluster.NodeTree + "b", cluster.PodsTree + "b/0000"}})
	within("b is removed", func() bool {
		a.parts.mu.Lock()
		defer a.parts.mu.Unlock()
		return len(a.parts.hosts) == 0 && len(a.parts.labels) == 0
	})
	nstest.Eventually(t, "the status says that the disk hangs", func() bool {
		return a.hasProblem("the disk does not answer")
	})
	if got := l.reportOf("a").Enforced; got != first {
		t.Errorf("version %v is reported before a start would enforce it", got)
	}
	metrics, err := a.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(metrics, func(m observe.Metric) bool {
		return m.Name == "weir_store_unwritten_steps" && m.Samples[0].Value > 0
	}) {
		t.Errorf("no unwritten step: %v", metrics)
	}

	release()
	nstest.Eventually(t, "the version is reported", func() bool {
		return l.reportOf("a").Enforced == l.head.Number
	})
	cut := t.TempDir()
	if err := os.CopyFS(cut, os.DirFS(filepath.Join(drive.Cut(t), "store"))); err != nil {
		t.Fatal(err)
	}
	again := l.start("a", cut, 1, newParts(), true)
	if now := again.parts.now(); now != next {
		t.Errorf("after a power cut %q is in force, not %q", now, next)
	}
	nstest.Eventually(t, "the problem is over", func() bool { return !a.hasProblem("the disk") })
	nstest.Eventually(t, "everything is written", func() bool { return a.unwrittenSteps() == 0 })
}

// TestAcceptSurvivesPowerCut: removals that were answered as accepted are not held again.
func TestAcceptSurvivesPowerCut(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	drive := powercut.New(t)
	a := l.start("a", filepath.Join(drive.Dir, "store"), 1, newParts(), false)
	nstest.Eventually(t, "b is known", func() bool { return a.Status().Hosts == 2 })
	l.commit(store.Txn{Delete: []string{cluster.NodeTree + "b"}})
	nstest.Eventually(t, "the removal is held", func() bool { return a.Status().Held == 1 })
	if _, err := a.Accept(); err != nil {
		t.Fatal(err)
	}
	cut := t.TempDir()
	if err := os.CopyFS(cut, os.DirFS(filepath.Join(drive.Cut(t), "store"))); err != nil {
		t.Fatal(err)
	}
	again := l.start("a", cut, 1, newParts(), true)
	if s := again.Status(); s.Held != 0 || s.Hosts != 1 {
		t.Errorf("after a power cut: %+v", s)
	}
}

// TestCopyOnFullDisk: the host follows, says so, and a start begins with a whole older state: its
// rules are those that it knew last. With space everything is written.
func TestCopyOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.join("a", 1, "10.0.1.0/24")
		l.join("b", 2, "10.0.2.0/24")
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
			if os.Getenv("WEIR_CI") == "1" {
				t.Fatalf("NOT TESTED: %v, and WEIR_CI=1 forbids to skip", err)
			}
			t.Skipf("NOT TESTED: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		a := l.start("a", dir, 1, newParts(), false)
		b := l.start("b", t.TempDir(), 2, newParts(), false)
		first := l.load("add 1 allow tcp from any to any 1\n", 0)
		nstest.Eventually(t, "the first version is reported", func() bool {
			return l.reportOf("a").Enforced == l.head.Number
		})
		a.writing.Lock() // a file that is half written would leave space when that fails
		fill, err := os.Create(filepath.Join(dir, "fill"))
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = fill.Write(make([]byte, 512))
		}
		fill.Close()
		a.writing.Unlock()

		second := l.load("add 2 allow tcp from any to any 2\n", 0)
		began := time.Now()
		nstest.Eventually(t, "the second version", func() bool { return a.parts.now() == second })
		if took := time.Since(began); took > retryEvery/2 {
			t.Errorf("the second version took %v", took)
		}
		for i := range 100 {
			addr := fmt.Sprintf("10.0.2.%d", i+1)
			b.SetPods([]cluster.Pod{pod(strings.Repeat("p", 60), addr)})
			nstest.Eventually(t, "a pod", func() bool { return a.hasLabel(web(addr)) })
		}
		nstest.Eventually(t, "the status says so", func() bool {
			return a.hasProblem("cannot be written") && a.hasProblem("a start would not know")
		})
		copied := func() string {
			a.writing.Lock()
			defer a.writing.Unlock()
			to := t.TempDir()
			if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			return to
		}
		again := l.start("a", copied(), 1, newParts(), true)
		if now := again.parts.now(); now != first {
			t.Errorf("a start enforces %q, not %q", now, first)
		}
		again.stop()

		if err := os.Remove(fill.Name()); err != nil {
			t.Fatal(err)
		}
		nstest.Eventually(t, "everything is written", func() bool {
			return !a.hasProblem("") && a.unwrittenSteps() == 0
		})
		again = l.start("a", copied(), 1, newParts(), true)
		if now := again.parts.now(); now != second || !again.hasLabel(web("10.0.2.100")) {
			t.Errorf("a start with space enforces %q, with %v", now, again.parts.labels)
		}
	})
}
