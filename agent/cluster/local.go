package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/store/cluster"
)

// local is what a host keeps beside the copy.
type local struct {
	// Of the file version.
	Epoch     uint64         `json:"epoch"`
	Admins    []cluster.Key  `json:"admins,omitempty"`
	Seen      cluster.Number `json:"seen"`                // the highest head, never a lower one
	Confirmed *cluster.Head  `json:"confirmed,omitempty"` // what a start enforces
	// Of the file revoked.
	Revoked []cluster.Serial `json:"-"`
}

// trust adds what the host learned since it joined.
func (l *local) trust(joined cluster.Trust) cluster.Trust {
	joined.Epoch = max(joined.Epoch, l.Epoch)
	if len(joined.Admins) > 0 && len(l.Admins) > 0 {
		joined.Admins = l.Admins
	}
	return joined
}

// readLocal reads the two files. A damaged one is an error: without it, a removed host could come
// back, or an old version.
func readLocal(dir string) (l local, err error) {
	for name, to := range map[string]any{"version": &l, "revoked": &l.Revoked} {
		b, err := os.ReadFile(path(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(b, to)
		}
		if err != nil {
			return l, fmt.Errorf("%s: %w", path(dir, name), err)
		}
	}
	return l, nil
}

// localFilesLocked returns the content of the two files, by name.
func (s *Service) localFilesLocked() (map[string][]byte, error) {
	trust := s.desired.Trust()
	s.local.Epoch, s.local.Admins, s.local.Seen = trust.Epoch, trust.Admins, trust.Head
	s.local.Revoked = s.desired.Revoked()
	files := map[string][]byte{}
	for name, of := range map[string]any{"version": &s.local, "revoked": s.local.Revoked} {
		b, err := json.Marshal(of)
		if err != nil {
			return nil, err
		}
		files[name] = append(b, '\n')
	}
	return files, nil
}

func writeFiles(dir string, files map[string][]byte) error {
	for name, content := range files {
		if err := atomicfile.Write(path(dir, name), content); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
