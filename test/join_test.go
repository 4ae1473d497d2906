package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJoinDuringStart: a host joins while its agent starts, which has looked for a cluster before
// and does not answer yet: a directory is in the place of its socket. The agent follows the store
// all the same, once it serves.
func TestJoinDuringStart(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	inTheWay := filepath.Join(k.b.root, "run/weir/weir.sock/file")
	if err := os.MkdirAll(inTheWay, 0o755); err != nil {
		t.Fatal(err)
	}
	k.b.start()
	token := strings.TrimSpace(k.a.weir("cluster", "invite"))
	if _, stderr, err := k.b.try("join", "--name", "b", token); err != nil ||
		!strings.Contains(stderr, "the node does not run") {
		t.Fatalf("join: %v\n%s", err, stderr)
	}
	if err := os.RemoveAll(filepath.Dir(inTheWay)); err != nil {
		t.Fatal(err)
	}
	k.eventually("b follows", func() error {
		if s := k.b.status(); s.Cluster == nil || !s.Cluster.Connected {
			return fmt.Errorf("status: %+v", s.Cluster)
		}
		return nil
	})
}
