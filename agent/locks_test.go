package agent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLockOrderIsComplete: the lock order of the package documentation lists every mutex of the
// package and those below it, and no other.
func TestLockOrderIsComplete(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, order, _ := strings.Cut(string(doc), "# Lock order")
	var listed []string
	for line := range strings.Lines(order) {
		row, ok := strings.CutPrefix(line, "//\t")
		for word := range strings.FieldsSeq(row) {
			if name := strings.TrimSuffix(word, ","); ok && strings.Contains(name, ".") {
				listed = append(listed, name)
			}
		}
	}
	have := mutexes(t)
	slices.Sort(listed)
	if !slices.Equal(listed, have) {
		t.Errorf("the lock order lists\n%v, the packages have\n%v", listed, have)
	}
}

// mutexes returns the fields of package agent and of the packages below it that are locks, as
// TYPE.FIELD or PACKAGE.TYPE.FIELD, in order.
func mutexes(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		in := ""
		if dir := filepath.Dir(path); dir != "." {
			in = dir + "."
		}
		for n := range ast.Preorder(file) {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				continue
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				all = append(all, locksOf(in+spec.Name.Name, s)...)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func locksOf(name string, s *ast.StructType) (all []string) {
	for _, field := range s.Fields.List {
		kind, ok := field.Type.(*ast.SelectorExpr)
		if !ok || kind.Sel.Name != "Mutex" && kind.Sel.Name != "RWMutex" {
			continue
		}
		if len(field.Names) == 0 { // embedded
			all = append(all, name+"."+kind.Sel.Name)
		}
		for _, f := range field.Names {
			all = append(all, name+"."+f.Name)
		}
	}
	return all
}
