package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/atomicfile"
)

// newFile is a rule file that is written once the rules in it were confirmed: a file that nothing
// has tried must not come into force at the next boot.
type newFile struct {
	path, text string
	replace    bool
}

// newFile returns the file that a request asks for, nil for none.
func (m *Manager) newFile(r api.Load) (*newFile, error) {
	path, _ := m.file()
	f := &newFile{path: path, text: r.Text, replace: r.Save == api.SaveReplace}
	switch r.Save {
	case "":
		return nil, nil
	case api.SaveNew, api.SaveReplace:
	default:
		return nil, fmt.Errorf("save: %q is neither %q nor %q", r.Save, api.SaveNew,
			api.SaveReplace)
	}
	if r.Confirm == "" {
		return nil, errors.New("a rule file is written only after a trial")
	}
	if _, err := os.Lstat(path); !f.replace && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(errFileThere{path}, err)
	}
	return f, nil
}

// write makes the file; undo makes what was there of it. A file that is replaced is kept under
// another name.
func (f *newFile) write() (undo func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return nil, err
	}
	undo = func() error { return atomicfile.Remove(f.path) }
	if !f.replace {
		err := atomicfile.Create(f.path, []byte(f.text))
		if errors.Is(err, fs.ErrExist) {
			err = errFileThere{f.path}
		}
		return undo, err
	}
	kept, err := atomicfile.LinkAside(f.path, "before")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		undo = func() error { return os.Rename(kept, f.path) }
	}
	if err := atomicfile.Write(f.path, []byte(f.text)); err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// errFileThere refuses to overwrite the owner's rule file.
type errFileThere struct{ path string }

func (e errFileThere) Error() string { return "there is a rule file already: " + e.path }

// Hint returns how to replace it.
func (e errFileThere) Hint() string {
	return "weir setup --force replaces it and keeps the old one as " + e.path + ".before-TIME"
}
