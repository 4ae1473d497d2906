package arch

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// skipped are directories that hold nothing written by hand.
var skipped = []string{".git", "bin", "dist/out", "internal/arch/testdata"}

// files lists the files below root for which want is true, as slash-separated paths from root.
func files(root string, want func(name string) bool) ([]string, error) {
	var names []string
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		switch {
		case d.IsDir() && slices.Contains(skipped, name):
			return filepath.SkipDir
		case d.Type().IsRegular() && want(name):
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// goFile reports whether name is Go code of the project's own; what tools generate says so in its
// first lines.
func goFile(name string) bool {
	return strings.HasSuffix(name, ".go") && !strings.Contains("/"+name, "/testdata/")
}

// generated reports whether text was written by a tool (go.dev/s/generatedcode).
func generated(text []byte) bool {
	for line := range strings.Lines(string(text[:min(len(text), 4096)])) {
		if strings.HasPrefix(line, "// Code generated ") &&
			strings.HasSuffix(strings.TrimSpace(line), " DO NOT EDIT.") {
			return true
		}
	}
	return false
}

func read(root, name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
}

// copies are directories with files of a library. Their style is the library's.
var copies = []string{"overlay/internal/device"}

// copied reports whether a file is one of a library.
func copied(name string, text []byte) bool {
	return slices.Contains(copies, path.Dir(name)) && generated(text)
}
