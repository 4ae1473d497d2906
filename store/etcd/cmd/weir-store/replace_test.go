package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/storetest"
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
		"grow -replace") {
		t.Errorf("it is a member: %s", said)
	}
	words[2], words[3] = "-replace", "-wait=1m"
	growing := a.command(append([]string{"grow"}, words...)...)
	var said strings.Builder
	growing.Stdout, growing.Stderr = &said, &said
	if err := growing.Start(); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "grow writes its file", func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
	c.run(t, "adopt", file)
	c.serve(t)
	if err := growing.Wait(); err != nil {
		t.Fatalf("grow: %v: %s", err, said.String())
	}
	b.kill(t)
	commit(t, x, put(cluster.PodsTree+"x/0000", "2"))
}
