package admin

import (
	"context"
	"errors"
	"testing"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// names are the names that are read of a store.
type names struct {
	store.Store
	read     []string
	compacts int // how often a revision is dropped before it is read again
}

func (n *names) Read(ctx context.Context, name string, revision int64) (store.Snapshot, error) {
	n.read = append(n.read, name)
	if revision > 0 && n.compacts > 0 {
		n.compacts--
		return store.Snapshot{}, store.ErrCompacted
	}
	return n.Store.Read(ctx, name, revision)
}

// TestReadsNothingOfHosts: a command of an administrator does not read what hosts write, of which
// stolen ones can write too much.
func TestReadsNothingOfHosts(t *testing.T) {
	l := newLab(t)
	if _, err := l.load(cluster.All, "add 1 allow ip from any to any\n", 0); err != nil {
		t.Fatal(err)
	}
	n := &names{Store: l.admin, compacts: 2}
	st, err := read(t.Context(), n)
	if err != nil || len(st.nodes) != 2 || st.head.Number.Count != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	for _, name := range n.read {
		for _, of := range []string{cluster.PodsTree + "a/0000", cluster.EndpointKey + "a"} {
			if store.Covers(name, of) {
				t.Errorf("it reads %s, and with it %s", name, of)
			}
		}
	}
}

// TestReadsHostsOnly: an attacker in the store has written something below the certificates of
// hosts, under a name that no host can have. That keeps no administrator from a command: no other
// command deletes it. What may be in the place of the certificate of a host does.
func TestReadsHostsOnly(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		name  string
		reads bool
	}{{"a/b", true}, {"not a name", true}, {"c", false}} {
		key := cluster.NodeTree + c.name
		if _, err := l.model.Commit(t.Context(), store.Txn{Put: []store.Entry{{Key: key,
			Value: []byte("garbage")}}}); err != nil {
			t.Fatal(err)
		}
		st, err := read(t.Context(), l.admin)
		if (err == nil) != c.reads || err == nil && len(st.nodes) != 2 {
			t.Errorf("with %s: %v", key, err)
		}
	}
}

// TestReadEnds: a store that drops every revision at once does not keep an administrator for ever.
func TestReadEnds(t *testing.T) {
	l := newLab(t)
	n := &names{Store: l.admin, compacts: maxReads}
	if _, err := read(t.Context(), n); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("%d reads, %v", len(n.read), err)
	}
}
