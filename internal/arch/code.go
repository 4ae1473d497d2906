package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
	"unicode"
)

// Code lists every place in the Go files below root that prints or exits where only cmd/weir may.
// The nested modules of tools and benchmarks hold programs of their own. It also lists every init
// function, and every exported identifier and package without a doc comment.
func Code(root string) ([]string, error) {
	all, err := files(root, goFile)
	if err != nil {
		return nil, err
	}
	var found []string
	documented := map[string]bool{} // by directory
	for name, text := range all {
		if generated(text) {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		report := reporter(fset, &found)
		checkInit(file, report)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		dir := path.Dir(name)
		documented[dir] = documented[dir] || file.Doc != nil
		if dir != "cmd/weir" && !strings.HasPrefix(dir, "tools") &&
			!strings.HasPrefix(dir, "peers/") && !strings.HasPrefix(dir, "examples/") &&
			dir != "test/siege" && dir != "test/run" && !strings.HasPrefix(dir, "store/etcd/cmd/") {
			checkOutput(file, report)
		}
		if file.Name.Name != "main" {
			checkDocs(file, report)
		}
	}
	for dir, ok := range documented {
		if !ok {
			found = append(found, fmt.Sprintf("%s: the package has no doc comment", dir))
		}
	}
	slices.Sort(found)
	return found, nil
}

type reportFunc func(at ast.Node, format string, args ...any)

// reporter returns a function that adds findings to found, with their position.
func reporter(fset *token.FileSet, found *[]string) reportFunc {
	return func(at ast.Node, format string, args ...any) {
		p := fset.Position(at.Pos())
		*found = append(*found, fmt.Sprintf("%s:%d: ", p.Filename, p.Line)+
			fmt.Sprintf(format, args...))
	}
}

// checkInit finds init functions: the command should show all that happens at its start.
func checkInit(file *ast.File, report reportFunc) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			report(f, "init function: wire by hand in the command")
		}
	}
}

// outputFuncs are functions and variables that only cmd/weir may use.
var outputFuncs = map[string][]string{
	"fmt":     {"Print", "Printf", "Println"},
	"os":      {"Exit", "Stdout"},
	"log":     {"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"},
	"syscall": {"Exit"},
}

func checkOutput(file *ast.File, report reportFunc) {
	imported := imports(file)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			from, as, what := selected(n, imported)
			if slices.Contains(outputFuncs[from], what) {
				report(n, "%s.%s: only cmd/weir prints and exits; return a value or an error", as,
					what)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "print" || f.Name == "println") {
				report(n, "%s: only cmd/weir prints", f.Name)
			}
		}
		return true
	})
}

// selfEvident are methods that an interface of the standard library describes.
var selfEvident = []string{"String", "Error", "Unwrap", "Is", "As", "GoString", "Format",
	"LogValue",
	"MarshalText", "UnmarshalText", "MarshalJSON", "UnmarshalJSON", "Len", "Less", "Swap"}

// checkDocs wants a comment at everything that is exported. A comment of a function or a type
// begins with its name, exported or not: else it is about something that had another name.
func checkDocs(file *ast.File, report reportFunc) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			checkFirstWord(d, d.Name, d.Doc, report)
			if !d.Name.IsExported() || d.Doc != nil {
				continue
			}
			if d.Recv == nil {
				report(d, "func %s has no doc comment", d.Name.Name)
			} else if t := receiver(d); ast.IsExported(t) &&
				!slices.Contains(selfEvident, d.Name.Name) {
				report(d, "method %s.%s has no doc comment", t, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if checkFirstWord(s, s.Name, s.Doc, report); len(d.Specs) == 1 {
						checkFirstWord(s, s.Name, d.Doc, report)
					}
					if s.Name.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
						report(s, "type %s has no doc comment", s.Name.Name)
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if n.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
							report(s, "%s has no doc comment", n.Name)
						}
					}
				}
			}
		}
	}
}

func checkFirstWord(at ast.Node, name *ast.Ident, doc *ast.CommentGroup, report reportFunc) {
	words := strings.FieldsFunc(doc.Text(), func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	if len(words) > 1 && slices.Contains([]string{"A", "An", "The"}, words[0]) {
		words = words[1:]
	}
	if len(words) > 0 && words[0] != name.Name {
		report(at, "the comment of %s begins with %q", name.Name, words[0])
	}
}

// receiver returns the name of the type that a method belongs to.
func receiver(f *ast.FuncDecl) string {
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
