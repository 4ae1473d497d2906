package arch

import (
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// skipped are directories that hold nothing written by hand.
var skipped = []string{".git", "bin", "dist/out", "internal/arch/testdata"}

// files returns the files below root for which want is true: slash-separated paths from root, in
// order, and contents.
func files(root string, want func(name string) bool) (iter.Seq2[string, []byte], error) {
	var names []string
	var contents [][]byte
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
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			names, contents = append(names, name), append(contents, content)
		}
		return nil
	})
	return func(yield func(string, []byte) bool) {
		for i, name := range names {
			if !yield(name, contents[i]) {
				return
			}
		}
	}, err
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

// copies are directories with files of a library. Their style is the library's.
var copies = []string{"overlay/internal/device"}

// copied reports whether a file is one of a library.
func copied(name string, text []byte) bool {
	return slices.Contains(copies, path.Dir(name)) && generated(text)
}
