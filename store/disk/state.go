package disk

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/store/cluster"
)

// State is what a directory had.
type State struct {
	Snapshot
	Log []Record // since the snapshot
	// Aside are the damaged files, under the names that they have now.
	Aside []string
}

// RemoveOtherCluster removes what the host kept of another cluster than the one that it has joined
// by now. The epoch, the versions and the keys of administrators of that one would refuse all that
// this one has. It comes before Open.
func RemoveOtherCluster(dir string, joined cluster.Serial) error {
	l, err := ReadLocal(dir)
	if err != nil {
		return err
	}
	if l.Cluster == joined || l.Cluster == (cluster.Serial{}) {
		return nil
	}
	// The file version says of which cluster the others are, so it goes when they are gone.
	for _, name := range []string{"texts", "revoked", "log.before", "copy.before", "log", "copy"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := atomicfile.SyncDir(dir); err != nil {
		return err
	}
	return atomicfile.Remove(filepath.Join(dir, "version"))
}

// Value returns the last value that the store had of a key, nil for none. One that it lost stays:
// the host may hold its removal.
func (s *State) Value(key string) (value []byte) {
	for _, e := range slices.Concat(s.Held, s.Stored.Entries) {
		if e.Key == key {
			value = e.Value
		}
	}
	for _, r := range s.Log {
		for _, ch := range r.Batch.Changes {
			if ch.Key == key && !ch.Deleted {
				value = ch.Value
			}
		}
	}
	return value
}
