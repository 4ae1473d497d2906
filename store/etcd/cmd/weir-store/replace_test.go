package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/store/cluster"
)

// TestReplacedMember: a store host that has lost its disk is not made a member again under its old
// number. grow says so, and replaces it when asked to; then another one may fail.
func TestReplacedMember(t *testing.T) {
	l := newLab(t)
	l.three(t)
	a, b, c := l.hosts[0], l.hosts[1], l.hosts[2]
	x := l.join(t, a, "x")
	commit(t, x, put(cluster.PodsTree+"x/0000", "1"))
	c.kill(t)
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(l.dir, "again.json")
	words := []string{"-peer-port", c.peer, "-wait", "1s", "c", c.address, file}
	if said := a.fails(t, append([]string{"grow"}, words...)...); !strings.Contains(said,
		"grow --replace") {
		t.Errorf("it is a member: %s", said)
	}
	words[2], words[3] = "-replace", "-wait=1m"
	l.grow(t, c, file, words...)
	b.kill(t)
	commit(t, x, put(cluster.PodsTree+"x/0000", "2"))
}

// TestLearnerAddedAgain: etcd makes the number of a member of its address and of the second in
// which it is added. One that is removed and added again in that second would have its old number.
func TestLearnerAddedAgain(t *testing.T) {
	l := newLab(t)
	a := l.open(t)
	cfg, err := home(a.dir).config()
	if err != nil {
		t.Fatal(err)
	}
	d, err := home(a.dir).driver(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const at = "https://127.0.0.1:1"
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	first, err := addLearner(t.Context(), d, at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Client().MemberRemove(t.Context(), first.Member.ID); err != nil {
		t.Fatal(err)
	}
	second, err := addLearner(t.Context(), d, at)
	if err != nil {
		t.Fatal(err)
	}
	if first.Member.ID == second.Member.ID {
		t.Errorf("both have the number %x", first.Member.ID)
	}
}
