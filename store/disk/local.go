package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/store/cluster"
)

// Local is the data that a host keeps in addition to the copy.
type Local struct {
	// Of the file version.
	Cluster   cluster.Serial  `json:"cluster,omitzero"` // of which all of this is
	Epoch     uint64          `json:"epoch"`
	Admins    cluster.KeyList `json:"admins,omitzero"`
	Seen      cluster.Number  `json:"seen"`                // the highest head, never a lower one
	Confirmed *cluster.Head   `json:"confirmed,omitempty"` // what a start enforces
	// Of the file revoked.
	Revoked []cluster.Serial `json:"-"`
}

// Trust adds what the host learned since it joined.
func (l *Local) Trust(joined cluster.Trust) cluster.Trust {
	if l.Epoch > 0 { // an administrator may have accepted an earlier one
		joined.Epoch = l.Epoch
	}
	if l.Admins.Count > joined.Admins.Count {
		joined.Admins = l.Admins
	}
	return joined
}

// ReadLocal reads the two files. A damaged one is an error: without it, a removed host could come
// back, or an old version.
func ReadLocal(dir string) (l Local, err error) {
	for name, to := range map[string]any{"version": &l, "revoked": &l.Revoked} {
		file := filepath.Join(dir, name)
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(b, to)
		}
		if err != nil {
			return l, fmt.Errorf("%s: %w", file, err)
		}
	}
	return l, nil
}

// LocalFiles are the two files, encoded.
type LocalFiles map[string][]byte

// Files encodes the two files.
func (l *Local) Files() (LocalFiles, error) {
	files := LocalFiles{}
	for name, of := range map[string]any{"version": l, "revoked": l.Revoked} {
		b, err := json.Marshal(of)
		if err != nil {
			return nil, err
		}
		files[name] = append(b, '\n')
	}
	return files, nil
}

// Write writes them, revoked before version: a removal record that was signed by a key of an
// earlier list is not believed again.
func (f LocalFiles) Write(dir string) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if err := atomicfile.Write(filepath.Join(dir, name), f[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
