package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/storetest"
)

// hasHost makes sure that the store that serves has a host.
func hasHost(t *testing.T, a *host, name string) {
	t.Helper()
	if _, there, err := document[cluster.Node](t.Context(), a.database(t),
		cluster.NodeTree+name); !there || err != nil {
		t.Errorf("the host %s: %v, %v", name, there, err)
	}
}

// backedUp returns a store host that host x has joined, stopped after a backup, and the backup.
func (l *lab) backedUp(t *testing.T) (a *host, file string) {
	t.Helper()
	a, file = l.init(t), filepath.Join(l.dir, "backup")
	a.serve(t)
	l.join(t, a, "x")
	a.run(t, "backup", file)
	a.stop(t)
	return a, file
}

// TestRestoreKilled: restore is killed as soon as it has made something beside the store. The next
// start does not serve an empty store.
func TestRestoreKilled(t *testing.T) {
	l := newLab(t)
	a, file := l.backedUp(t)
	restoring := a.command("restore", file)
	if err := restoring.Start(); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "restore begins", func() bool {
		made, err := filepath.Glob(filepath.Join(a.dir, etcdDir+".*"))
		return err == nil && len(made) > 0
	})
	if err := restoring.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = restoring.Wait() // on a busy machine it may have ended before
	a.serve(t)
	hasHost(t, a, "x")
	for _, left := range []string{newDir, restoredDir} {
		if _, err := os.Lstat(home(a.dir).file(left)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", left, err)
		}
	}
	a.stop(t)
	a.run(t, "restore", file)
	a.serve(t)
	if said := a.run(t, "grow", "-peer", "127.0.0.1:"+a.peer, "b", "127.0.0.1",
		filepath.Join(l.dir, "unused")); !strings.Contains(said, "restart") {
		t.Errorf("grow: %s", said)
	}
	a.stop(t)
	a.serve(t)
	hasHost(t, a, "x")
}

// TestRestoreKilledAtTheEnd: a restore whose store is whole is killed after each of the steps that
// put it in place. The next start finishes it.
func TestRestoreKilledAtTheEnd(t *testing.T) {
	l := newLab(t)
	a, file := l.backedUp(t)
	h := home(a.dir)
	for steps, epoch := 0, uint64(2); ; steps, epoch = steps+1, epoch+1 {
		h.buildFrom(t, file, epoch)
		all := h.steps(new(string))
		if steps > len(all) {
			break
		}
		for i, step := range all[:steps] {
			if err := step(); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
		a.serve(t)
		hasHost(t, a, "x")
		if doc, err := readIdentity(t.Context(), a.database(t)); err != nil ||
			doc.Epoch != epoch {
			t.Errorf("after %d steps: epoch %d, not %d: %v", steps, doc.Epoch, epoch, err)
		}
		if known, err := h.epoch(); err != nil || known != epoch {
			t.Errorf("after %d steps this host knows epoch %d, not %d: %v", steps, known, epoch,
				err)
		}
		if list, err := h.pinnedKeys(); err != nil || list.Count != 0 {
			t.Errorf("after %d steps this host knows list %d of keys: %v", steps, list.Count, err)
		}
		a.stop(t)
	}
}

// buildFrom makes a new store with a backup, without the keys that this host knows, and does not
// put it in place.
func (h home) buildFrom(t *testing.T, file string, epoch uint64) {
	t.Helper()
	if err := h.pinKeys(cluster.KeyList{Count: epoch}); err != nil {
		t.Fatal(err)
	}
	opened, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	entries, err := members.ReadBackup(opened)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := h.config()
	if err != nil {
		t.Fatal(err)
	}
	p, err := members.PrepareRestore(entries, members.PriorState{Epoch: epoch - 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.build(t.Context(), replacement{Config: cfg, Epoch: p.Epoch, WithoutKeys: true},
		p); err != nil {
		t.Fatal(err)
	}
}

// TestStoreGone: where the store is gone and config.json is not, weir-store does not begin an empty
// one, which would have hosts hold all that they have.
func TestStoreGone(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	if err := os.RemoveAll(home(a.dir).file(etcdDir)); err != nil {
		t.Fatal(err)
	}
	if said := a.fails(t, "serve"); !strings.Contains(said, "weir cluster restore FILE") {
		t.Errorf("it says: %s", said)
	}
}

// TestRestoreIsAlone: weir-store does not start while restore works in its directory.
func TestRestoreIsAlone(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	held, err := home(a.dir).forRestore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{"serve"}, {"init", "-address",
		a.address, "-admin-file", l.adminFile()}} {
		if said := a.fails(t, words...); !strings.Contains(said, "has it open") {
			t.Errorf("%v: %s", words, said)
		}
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	a.serve(t)
}
