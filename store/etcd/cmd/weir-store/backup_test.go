package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/store/cluster"
)

// TestRestoreGarbage: a backup of a store into which an attacker has written garbage can be
// restored. What the store host knows takes the place of the cluster's identity and keys. Of the
// rules there is no such record: the administrator decides to restore none.
func TestRestoreGarbage(t *testing.T) {
	l := newLab(t)
	a := l.init(t, "-signed")
	a.serve(t)
	x := l.join(t, a, "x")
	l.loadText(t, cluster.All, "add 1 allow ip from any to any\n", 0)
	d := a.database(t)
	garbage := []string{cluster.IdentityKey, cluster.KeysKey, cluster.HeadKey}
	for _, key := range garbage {
		commit(t, d, put(key, "garbage"))
	}
	file := filepath.Join(l.dir, "backup")
	said := a.run(t, "backup", file)
	for _, key := range garbage {
		if !strings.Contains(said, key+": not a valid document") {
			t.Errorf("%s is not named: %s", key, said)
		}
	}
	a.stop(t)
	restore := []string{"restore", "-sign", l.adminFile()}
	if said := a.fails(t, append(restore, file)...); !strings.Contains(said, "-without-rules") {
		t.Errorf("with the rules: %s", said)
	}
	said = a.run(t, append(restore, "-without-rules", file)...)
	for _, want := range []string{cluster.IdentityKey + " is made again", cluster.KeysKey +
		" has list 1", "the store has no rules"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in: %s", want, said)
		}
	}
	a.serve(t)
	again := l.connect(t, x.Credential, "x")
	if got, err := again.Read(t.Context(), cluster.NodeTree+"x", 0); err != nil ||
		len(got.Entries) != 1 || !bytes.Equal(got.Entries[0].Value, x.Node) {
		t.Errorf("x has %v, %v", got.Entries, err)
	}
	l.loadText(t, cluster.All, "add 2 allow ip from any to any\n", 0)
	l.join(t, a, "y")
}

// TestRestoreWithoutTheKeysOfAnAttacker: in a cluster whose rules are not signed, an attacker in
// the store has written its own key as that of the only administrator, which this store host
// believes.
func TestRestoreWithoutTheKeysOfAnAttacker(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	a.serve(t)
	l.loadText(t, cluster.All, "add 1 allow ip from any to any\n", 0)
	commit(t, a.database(t), put(cluster.KeysKey, keysOfAnAttacker(t)))
	a.run(t, "invite") // it takes the list
	file := filepath.Join(l.dir, "backup")
	a.run(t, "backup", file)
	a.stop(t)
	for want, args := range map[string][]string{"-without-keys": {"restore", file},
		"another administrator": {"restore", "-sign", l.adminFile(), file},
		"not both":              {"restore", "-sign", l.adminFile(), "-without-keys", file}} {
		if said := a.fails(t, args...); !strings.Contains(said, want) {
			t.Errorf("%q is missing in: %s", want, said)
		}
	}
	a.run(t, "restore", "-without-keys", file)
	a.serve(t)
	l.loadText(t, cluster.All, "add 2 allow ip from any to any\n", 0)
	l.join(t, a, "y")
	if list, err := home(a.dir).pinnedKeys(); err != nil || list.Count > 0 {
		t.Errorf("this host knows list %d, %v", list.Count, err)
	}
}

// keysOfAnAttacker is a list of the key of one administrator, as an attacker in the store may write
// it.
func keysOfAnAttacker(t *testing.T) string {
	t.Helper()
	value, err := cluster.Encode(&cluster.AdminKeys{Lists: []cluster.KeyList{{Count: 7,
		Keys: []cluster.Key{{1}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(value)
}

// TestBackupOnFullDisk: a backup that has no space leaves no file, and says what to do.
func TestBackupOnFullDisk(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	a.serve(t)
	disk := filepath.Join(l.dir, "disk")
	smallDisk(t, disk, "64k")
	if err := os.WriteFile(filepath.Join(disk, "fill"), make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := a.fails(t, "backup", filepath.Join(disk, "backup")); !strings.Contains(said,
		"no space left on device\nhint: free space there: df -h "+disk) {
		t.Errorf("it says: %s", said)
	}
	left, err := os.ReadDir(disk)
	if err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if said := a.fails(t, "restore", filepath.Join(disk, "none")); !strings.Contains(said,
		"hint: none does not exist in "+disk) {
		t.Errorf("without the file: %s", said)
	}
}
