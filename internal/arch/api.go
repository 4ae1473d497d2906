package arch

import (
	_ "embed"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path"
	"slices"
	"strings"
)

//go:embed libraries.txt
var librariesText string

// libraries are the packages that other programs may import, and whose API is promised. Makefile
// and scripts/verify-light read the same file.
var libraries = strings.Fields(librariesText)

// API lists the exported API of the libraries below root, one declaration in each line. A field and
// a method of an interface have lines of their own.
func API(root string) ([]string, error) {
	all, err := files(root, func(name string) bool {
		return goFile(name) && !strings.HasSuffix(name, "_test.go") &&
			slices.Contains(libraries, path.Dir(name))
	})
	if err != nil {
		return nil, err
	}
	var lines []string
	for name, text := range all {
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if file.Name.Name == "main" {
			continue
		}
		a := api{prefix: path.Dir(name) + ": ", lines: &lines}
		for _, d := range file.Decls {
			a.declaration(d)
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil // files for several systems declare the same
}

// api collects the lines of one file.
type api struct {
	prefix string
	lines  *[]string
}

func (a api) add(text string) { *a.lines = append(*a.lines, a.prefix+text) }

func (a api) declaration(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() || d.Recv != nil && !ast.IsExported(receiver(d)) {
			return
		}
		a.add(source(&ast.FuncDecl{Recv: unnamed(d.Recv), Name: d.Name, Type: signature(d.Type)}))
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					a.declaredType(s)
				}
			case *ast.ValueSpec: // the type of a constant may be that of the one before
				for _, n := range s.Names {
					if n.IsExported() {
						a.add(d.Tok.String() + " " + n.Name)
					}
				}
			}
		}
	}
}

func (a api) declaredType(s *ast.TypeSpec) {
	head := "type " + s.Name.Name
	if s.TypeParams != nil {
		for _, p := range s.TypeParams.List {
			head += " [" + source(p.Type) + "]"
		}
	}
	if s.Assign.IsValid() {
		head += " ="
	}
	var members *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		head, members = head+" struct", t.Fields
	case *ast.InterfaceType:
		head, members = head+" interface", t.Methods
	default:
		a.add(head + " " + source(s.Type))
		return
	}
	a.add(head)
	for _, m := range members.List {
		kind := m.Type
		if f, ok := kind.(*ast.FuncType); ok {
			kind = signature(f)
		}
		for _, n := range m.Names {
			if n.IsExported() {
				a.add(head + ", " + n.Name + " " + source(kind))
			}
		}
		if len(m.Names) == 0 {
			a.add(head + ", " + source(kind))
		}
	}
}

// signature is a function's type without the names of parameters, which callers do not use.
func signature(f *ast.FuncType) *ast.FuncType {
	return &ast.FuncType{TypeParams: f.TypeParams, Params: unnamed(f.Params),
		Results: unnamed(f.Results)}
}

func unnamed(list *ast.FieldList) *ast.FieldList {
	if list == nil {
		return nil
	}
	bare := &ast.FieldList{}
	for _, f := range list.List {
		for range max(1, len(f.Names)) {
			bare.List = append(bare.List, &ast.Field{Type: f.Type})
		}
	}
	return bare
}

// source is the text of a node in one line.
func source(n ast.Node) string {
	var b strings.Builder
	if err := printer.Fprint(&b, token.NewFileSet(), n); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
