package cluster

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// TestTrialThatEndsAtOnce: a trial ends before the host has noted that it began, on a machine that
// was paused. That does not keep the host from the version when it is confirmed.
func TestTrialThatEndsAtOnce(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	p := newParts()
	p.entered = func(l Load) {
		if l.Trial == 0 {
			return
		}
		p.mu.Lock()
		p.timer.Stop()
		p.rules, p.onTrial = p.before, false
		p.mu.Unlock()
		l.Reverted()
	}
	l.start("a", t.TempDir(), 1, p, false)
	first := l.load("add 100 allow tcp from any to any\n", 0)
	nstest.Eventually(t, "the first version", func() bool { return p.now() == first })
	trial := l.load("add 200 allow udp from any to any\n", time.Hour)
	nstest.Eventually(t, "the trial", func() bool {
		r := l.reportOf("a")
		return r.Enforced == l.head.Number || r.Refused != nil
	})
	l.confirm()
	nstest.Eventually(t, "the confirmed version", func() bool {
		return p.now() == trial && l.reportOf("a").Enforced == l.head.Number
	})
}

// TestVersionWithoutText: a host says that the store does not have the rules of a version, and
// takes them when they come.
func TestVersionWithoutText(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	digest, texts, err := cluster.EncodeText("add 100 allow tcp from any to any\n")
	if err != nil {
		t.Fatal(err)
	}
	l.head = l.head.Next(map[cluster.Scope]cluster.Digest{cluster.All: digest}, "test", 0)
	l.put(cluster.HeadKey, &l.head)
	nstest.Eventually(t, "the report", func() bool {
		r := l.reportOf("a")
		return r.Refused != nil && *r.Refused == l.head.Number &&
			strings.Contains(r.Why, "load them again")
	})
	l.commit(store.Txn{Put: texts})
	nstest.Eventually(t, "the version", func() bool {
		r := l.reportOf("a")
		return r.Refused == nil && r.Enforced == l.head.Number && a.parts.now() != ""
	})
}

// TestTextsOfVersionsThatCannotBe: versions of which the store has only some of the rules, however
// many there are, do not fill the memory and the disk. Of each the host keeps what it got while
// that version is the newest.
func TestTextsOfVersionsThatCannotBe(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	const many = 20
	for i := range many {
		text := fmt.Sprintf("add %d allow ip from me to any\n", i+1)
		digest, texts, err := cluster.EncodeText(text)
		if err != nil {
			t.Fatal(err)
		}
		l.commit(store.Txn{Put: texts})
		l.head = l.head.Next(map[cluster.Scope]cluster.Digest{cluster.All: digest,
			"node:a": {1}}, "test", 0)
		l.put(cluster.HeadKey, &l.head)
		// Which one it reads first is random: it tries until it has the one that is there.
		nstest.Eventually(t, "the text that is there", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			_, there := a.texts[digest]
			return there && a.report.Refused != nil && *a.report.Refused == l.head.Number
		})
	}
	nstest.Eventually(t, "only what the newest version has is kept", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.texts) <= 1
	})
}

// TestStepsWhileParsing: while a version is parsed, which takes long if it is large, the host
// follows the store and answers.
func TestStepsWhileParsing(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	begun, end := make(chan struct{}), make(chan struct{})
	begin, release := sync.OnceFunc(func() { close(begun) }), sync.OnceFunc(func() { close(end) })
	defer release()
	p := newParts()
	p.parsing = func(text string) {
		if strings.Contains(text, "add 7 ") {
			begin()
			<-end
		}
	}
	a := l.start("a", t.TempDir(), 1, p, false)
	version := l.load("add 7 allow tcp from any to any\n", 0)
	<-begun
	l.put(cluster.PodsTree+"b/0000", &cluster.Pods{Pods: []cluster.Pod{pod("x", "10.0.2.1")}})
	nstest.Eventually(t, "a pod of b", func() bool { return a.hasLabel(web("10.0.2.1")) })
	nstest.Eventually(t, "status", func() bool { return a.Status().Revision > 0 })
	release()
	nstest.Eventually(t, "the version", func() bool { return p.now() == version })
}
