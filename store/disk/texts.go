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

// All returns the texts. Those that cannot be read are left out, and damaged ones removed; the
// error names them.
func (t Texts) All() (map[cluster.Digest]string, error) { return readTexts(t.path, os.Remove) }

// ReadTexts reads a directory as All does, and changes nothing in it.
func ReadTexts(dir string) (map[cluster.Digest]string, error) {
	return readTexts(dir, func(string) error { return nil })
}

func readTexts(dir string, damaged func(file string) error) (map[cluster.Digest]string, error) {
	texts := map[cluster.Digest]string{}
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return texts, nil
	}
	errs := []error{err}
	for _, f := range files {
		var digest cluster.Digest
		if digest.UnmarshalText([]byte(f.Name())) != nil {
			continue
		}
		file := filepath.Join(dir, f.Name())
		b, err := os.ReadFile(file)
		switch {
		case err != nil:
			errs = append(errs, err)
		case cluster.TextDigest(string(b)) != digest:
			errs = append(errs, fmt.Errorf("%s was damaged", file), damaged(file))
		default:
			texts[digest] = string(b)
		}
	}
	return texts, errors.Join(errs...)
}

// Put adds a text.
func (t Texts) Put(text string) error {
	return atomicfile.Write(t.at(cluster.TextDigest(text)), []byte(text))
}

// RemoveOthers removes all texts but these.
func (t Texts) RemoveOthers(texts map[cluster.Digest]string) error {
	all, err := os.ReadDir(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range all {
		var d cluster.Digest
		kept := d.UnmarshalText([]byte(e.Name())) == nil
		if kept {
			_, kept = texts[d]
		}
		if !kept {
			errs = append(errs, os.RemoveAll(filepath.Join(t.path, e.Name())))
		}
	}
	return errors.Join(errs...)
}
