package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirnet/weir/store/cluster"
)

// TestMemberOfOthers: the file with the key of a host is refused if others can read it. They cannot
// in a directory that is closed to them.
func TestMemberOfOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	node, err := cluster.Encode(&cluster.Node{Name: "b", Serial: cluster.Serial{1},
		TLS: cluster.Key{1}, WireGuard: cluster.Key{1}, Signature: cluster.Signature{1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Member{Name: "b", Cluster: cluster.Serial{1}, Stores: []string{"a:1"}, Node: node,
		Credential: "x"}).Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir, file fs.FileMode
		refused   bool
	}{{0o700, 0o600, false}, {0o755, 0o600, false}, {0o755, 0o644, true}, {0o710, 0o640, true},
		{0o701, 0o604, true}, {0o700, 0o644, false}, {0o744, 0o644, false}} {
		if err := errors.Join(os.Chmod(dir, c.dir),
			os.Chmod(filepath.Join(dir, MemberFile), c.file)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadMember(dir); errors.Is(err, ErrExposed) != c.refused ||
			!c.refused && err != nil {
			t.Errorf("%o in %o: %v", c.file, c.dir, err)
		}
	}
}
