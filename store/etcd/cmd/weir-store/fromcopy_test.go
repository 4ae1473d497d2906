package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/storetest"
)

// loadText loads rules as the administrator does, signed.
func (l *lab) loadText(t *testing.T, scope cluster.Scope, text string,
	try time.Duration) *cluster.Head {
	t.Helper()
	c, err := identity.ReadCredential(l.adminFile())
	if err != nil {
		t.Fatal(err)
	}
	h, _, err := admin.Load(t.Context(), l.admin(t), admin.Loading{Scope: scope, Name: "f",
		Text: text, By: "me", Trial: try, Sign: admin.Signer{Key: c.Key},
		Parse: func(name, text string) (*rule.Ruleset, error) {
			return rule.ParseFile(name, text, new(rule.Names))
		}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// writeCopy writes what an agent that follows has on its disk.
func writeCopy(t *testing.T, dir string, f *follower, local disk.Local, texts ...string) {
	t.Helper()
	d, _, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	snapshot := disk.Snapshot{Stored: f.copy.Stored().Snapshot(), Held: f.copy.HeldEntries()}
	f.mu.Unlock()
	files, err := local.Files()
	if err == nil {
		err = files.Write(dir)
	}
	for _, text := range texts {
		if err == nil {
			err = d.Texts().Put(text)
		}
	}
	if err == nil {
		err = d.WriteSnapshot(snapshot)
	}
	if err == nil {
		err = d.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// rangeOf returns the first range of a host.
func rangeOf(t *testing.T, m *member) netip.Prefix {
	t.Helper()
	n, err := cluster.Decode[cluster.Node](m.Node)
	if err != nil {
		t.Fatal(err)
	}
	return n.Ranges[0]
}

// copiedHost is a host whose copies of what the store had are on disks.
type copiedHost struct {
	*member
	follows   *follower
	confirmed *cluster.Head
	copy      string // the directory of what it has
	texts     string // that of another host, which has the rules of a role
	removed   []*member
}

// copyHost has a host follow what the administrator does, and copies that.
func (l *lab) copyHost(t *testing.T, a *host) *copiedHost {
	t.Helper()
	x, gone := l.join(t, a, "x"), l.join(t, a, "gone")
	back := l.join(t, a, "back") // x knows that it was removed, and the store does not any more
	f := follow(t, x.Client)
	const all, web = "add 1 allow ip from any to any\n", "add 2 allow tcp from any to any\n"
	l.loadText(t, cluster.All, all, 0)
	confirmed := l.loadText(t, "role:web", web, 0)
	l.loadText(t, cluster.All, "add 3 deny ip from any to any\n", time.Minute)
	commit(t, x, put(cluster.PodsTree+"x/0000", ""))
	bad := netip.MustParsePrefix("192.0.2.0/24")
	if _, err := admin.ChangeMembers(t.Context(), l.admin(t), "bad",
		[]cluster.Member{{Prefix: bad, Value: 7}}, nil); err != nil {
		t.Fatal(err)
	}
	a.run(t, "remove", "-sign", l.adminFile(), "gone")
	storetest.Eventually(t, "x has everything", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		_, table := f.copy.Stored().Get(cluster.BucketKey("bad", bad))
		_, there := f.copy.Stored().Get(cluster.NodeTree + "gone")
		return table && !there
	})
	local := disk.Local{Epoch: 1, Seen: confirmed.Number, Confirmed: confirmed}
	h := &copiedHost{x, f, confirmed, filepath.Join(l.dir, "copy"), filepath.Join(l.dir, "other"),
		[]*member{gone, back}}
	for _, m := range h.removed {
		node, err := cluster.Decode[cluster.Node](m.Node)
		if err != nil {
			t.Fatal(err)
		}
		local.Revoked = append(local.Revoked, node.Serial)
	}
	writeCopy(t, h.copy, f, local, all)
	writeCopy(t, h.texts, f, local, web)
	return h
}

// TestFromCopy: every store is lost. The cluster is made again from what a host has. The hosts are
// members still, the rules and tables are there, removed hosts are not, and no range is given out
// twice. The hosts demand signed rules.
func TestFromCopy(t *testing.T) {
	l := newLab(t)
	a := l.init(t, "-signed")
	a.serve(t)
	x := l.copyHost(t, a)
	a.kill(t)
	l.initFromCopy(t, a, x)
	a.setHeartbeat(t, 50*time.Millisecond)
	a.serve(t)

	storetest.Eventually(t, "x follows the new store", func() bool {
		x.follows.mu.Lock()
		defer x.follows.mu.Unlock()
		e, ok := x.follows.copy.Stored().Get(cluster.HeadKey)
		h, err := cluster.Decode[cluster.Head](e.Value)
		return ok && err == nil && h.Number == cluster.Number{Epoch: 2, Count: 1} &&
			h.Same(x.confirmed) && h.Trial == nil
	})
	if n := x.follows.held(); n > 1 { // the follower of this test takes "back" for a member
		t.Errorf("%d removals are held", n)
	}
	for _, m := range x.removed {
		if _, err := m.Read(t.Context(), cluster.HeadKey, 0); err == nil {
			t.Error("a removed host reads")
		}
	}
	y := l.join(t, a, "y")
	if rangeOf(t, y).Overlaps(rangeOf(t, x.member)) {
		t.Errorf("x and y have %v and %v", rangeOf(t, x.member), rangeOf(t, y))
	}
	l.loadText(t, cluster.All, "add 4 allow ip from any to any\n", 0) // reads all the others
}

// initFromCopy makes the cluster again after everything is lost: once, with the CA, the rules of
// every role and the administrator that there were. It does not change the copy.
func (l *lab) initFromCopy(t *testing.T, a *host, x *copiedHost) {
	ca, err := os.ReadFile(filepath.Join(a.dir, caFile))
	if err == nil {
		err = os.RemoveAll(a.dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	again := []string{"init", "-name", "a", "-address", a.address, "-admin-file", l.adminFile(),
		"-from-copy", x.copy}
	if said := a.fails(t, again...); !strings.Contains(said, "put its ca.pem there") {
		t.Errorf("with a new CA: %s", said)
	}
	if err := os.WriteFile(filepath.Join(a.dir, caFile), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := a.fails(t, again...); !strings.Contains(said, "role:web (on x)") ||
		!strings.Contains(said, "-texts") {
		t.Errorf("without the rules of a role: %s", said)
	}
	again = append(again, "-texts", filepath.Join(x.texts, "texts"))
	if err := os.Rename(l.adminFile(), l.adminFile()+".away"); err != nil {
		t.Fatal(err)
	}
	if said := a.fails(t, again...); !strings.Contains(said, "another administrator") {
		t.Errorf("with a new administrator: %s", said)
	}
	if err := os.Rename(l.adminFile()+".away", l.adminFile()); err != nil {
		t.Fatal(err)
	}
	const pool = "-pool 10.64.0.0/12:24"
	if said := a.fails(t, again...); !strings.Contains(said, pool) {
		t.Errorf("with the pools of the copy, which have no signature: %s", said)
	}
	again = append(again, strings.Fields(pool)...)
	before := listing(t, x.copy)
	if said := a.run(t, again...); !strings.Contains(said, "epoch 2") ||
		strings.Contains(said, "hosts look for") {
		t.Error(said)
	}
	if after := listing(t, x.copy); after != before {
		t.Errorf("the copy was\n%s\nand is\n%s", before, after)
	}
	if said := a.fails(t, again...); !strings.Contains(said, "already") {
		t.Errorf("once more: %s", said)
	}
}

// listing returns names, sizes and times of the files of a directory.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&all, path, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestFromCopyGarbage: an attacker in the store has written garbage, or what looks like a later
// Weir's, which every host has in its copy. The cluster can be made again from one: what the host
// knows without the store takes its place.
func TestFromCopyGarbage(t *testing.T) {
	for _, value := range []string{"garbage", `{"version":2}`} {
		t.Run(value, func(t *testing.T) { fromCopyGarbage(t, value) })
	}
}

func fromCopyGarbage(t *testing.T, garbage string) {
	l := newLab(t)
	a := l.init(t, "-signed")
	a.serve(t)
	x := l.join(t, a, "x")
	f := follow(t, x.Client)
	const all = "add 1 allow ip from any to any\n"
	confirmed := l.loadText(t, cluster.All, all, 0)
	d := a.database(t)
	id, err := readIdentity(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	admins, err := home(a.dir).pinnedKeys()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{cluster.IdentityKey, cluster.KeysKey, cluster.HeadKey} {
		commit(t, d, put(key, garbage))
		storetest.Eventually(t, "x has it", func() bool { return f.has(key, garbage) })
	}
	a.kill(t)
	from := filepath.Join(l.dir, "copy")
	writeCopy(t, from, f, disk.Local{Cluster: id.ID, Epoch: 1, Admins: admins,
		Seen: confirmed.Number, Confirmed: confirmed}, all)
	if err := os.RemoveAll(filepath.Join(a.dir, etcdDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(a.dir, configFile)); err != nil {
		t.Fatal(err)
	}
	again := []string{"init", "-name", "a", "-address", a.address, "-admin-file", l.adminFile(),
		"-from-copy", from}
	if said := a.fails(t, again...); !strings.Contains(said, "add --pool NETWORK:LENGTH") {
		t.Errorf("without pools: %s", said)
	}
	a.run(t, append(again, "-pool", "10.64.0.0/12:24")...)
	a.serve(t)
	got, err := readIdentity(t.Context(), a.database(t))
	if err != nil || got.ID != id.ID || got.Epoch != 2 || len(got.CA) != 1 {
		t.Errorf("the cluster is %+v, %v", got, err)
	}
	l.loadText(t, cluster.All, "add 2 allow ip from any to any\n", 0)
	l.join(t, a, "y")
}

// TestFromCopyWithoutKeys: an attacker in a store whose rules are not signed has written its own
// key as that of the only administrator. The cluster can be made again without it, unless the host
// of the copy demands signatures.
func TestFromCopyWithoutKeys(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	a.serve(t)
	f := follow(t, l.join(t, a, "x").Client)
	keys := keysOfAnAttacker(t)
	d := a.database(t)
	commit(t, d, put(cluster.KeysKey, keys))
	storetest.Eventually(t, "x has it", func() bool {
		return f.has(cluster.KeysKey, keys)
	})
	a.run(t, "invite") // this store host takes the list
	a.kill(t)
	from := filepath.Join(l.dir, "copy")
	if err := os.RemoveAll(filepath.Join(a.dir, etcdDir)); err != nil {
		t.Fatal(err)
	}
	again := []string{"init", "-name", "a", "-address", a.address, "-admin-file", l.adminFile(),
		"-pool", "10.64.0.0/12:24", "-from-copy", from}
	locked := cluster.KeyList{Count: 1, Keys: []cluster.Key{{2}}}
	for _, c := range []struct {
		admins cluster.KeyList
		want   string
		args   []string
	}{{cluster.KeyList{}, "leave them out", again},
		{locked, "demands signed rules", append(again, "-without-keys")}} {
		writeCopy(t, from, f, disk.Local{Epoch: 1, Admins: c.admins})
		if said := a.fails(t, c.args...); !strings.Contains(said, c.want) {
			t.Errorf("%q is missing in: %s", c.want, said)
		}
	}
	writeCopy(t, from, f, disk.Local{Epoch: 1})
	a.run(t, append(again, "-without-keys")...)
	a.serve(t)
	l.loadText(t, cluster.All, "add 1 allow ip from any to any\n", 0)
	l.join(t, a, "y")
}

// TestFromCopyUnsigned: no administrator signs what is in a copy without keys of administrators.
func TestFromCopyUnsigned(t *testing.T) {
	own := &identity.Credential{Key: signingKey(t)}
	if key, err := restoreKey(nil, cluster.KeyList{}, "", own); key != nil || err != nil {
		t.Errorf("signed by %x, %v", key, err)
	}
	list := cluster.KeyList{Count: 1, Keys: []cluster.Key{admin.KeyOf(own.Key)}}
	if key, err := restoreKey(nil, list, "", own); !key.Equal(own.Key) || err != nil {
		t.Errorf("the host of the copy demands signatures: signed by %x, %v", key, err)
	}
}
