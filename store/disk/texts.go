package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/store/cluster"
)

// Texts returns the cache of texts of a directory.
func (d *Dir) Texts() Texts { return Texts{d.at("texts")} }

// Texts is a cache of the texts of rules, by digest.
type Texts struct{ path string }

func (t Texts) at(digest cluster.Digest) string { return filepath.Join(t.path, digest.String()) }

// Get returns a text; the error is fs.ErrNotExist if the cache does not have it. A damaged file is
// removed.
func (t Texts) Get(digest cluster.Digest) (string, error) {
	b, err := os.ReadFile(t.at(digest))
	if err != nil {
		return "", err
	}
	if cluster.TextDigest(string(b)) != digest {
		return "", errors.Join(fmt.Errorf("%s was damaged: %w", t.at(digest), fs.ErrNotExist),
			os.Remove(t.at(digest)))
	}
	return string(b), nil
}

// Put adds a text.
func (t Texts) Put(text string) error {
	return atomicfile.Write(t.at(cluster.TextDigest(text)), []byte(text))
}

// Keep removes all texts but those that are named.
func (t Texts) Keep(digests map[cluster.Digest]bool) error {
	all, err := os.ReadDir(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range all {
		var d cluster.Digest
		if d.UnmarshalText([]byte(e.Name())) != nil || !digests[d] {
			errs = append(errs, os.RemoveAll(filepath.Join(t.path, e.Name())))
		}
	}
	return errors.Join(errs...)
}
