package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// maxTestLines is how long a test may be, from func to the closing brace.
const maxTestLines = 80

// Tests lists what tests below root break:
//
//   - Functions that take a *testing.T or its like have at most maxTestLines: a test does not
//     become shorter when another function has its body.
//   - Test files draw no random number that has no seed: a test that passed does not fail by
//     chance.
func Tests(root string) ([]string, error) {
	all, err := files(root, goFile)
	if err != nil {
		return nil, err
	}
	var found []string
	for name, text := range all {
		if generated(text) {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		checkTests(fset, file, reporter(fset, &found))
		if strings.HasSuffix(name, "_test.go") {
			checkSeeds(file, reporter(fset, &found))
		}
	}
	slices.Sort(found)
	return found, nil
}

func checkTests(fset *token.FileSet, file *ast.File, report reportFunc) {
	imported := imports(file)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !isTest(f, imported) {
			continue
		}
		if n := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1; n > maxTestLines {
			report(f, "%s: %d lines, at most %d: give its phases or its table a name", f.Name.Name,
				n, maxTestLines)
		}
	}
}

// checkSeeds reports calls of functions that use the random source of the process.
func checkSeeds(file *ast.File, report reportFunc) {
	imported := imports(file)
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		from, as, what := selected(call.Fun, imported)
		if strings.HasPrefix(from, "math/rand") && !strings.HasPrefix(what, "New") {
			report(call, "%s.%s has no seed: draw from rand.New with testrand.Seed", as, what)
		}
		return true
	})
}

// isTest reports whether a function takes what go test hands to a test.
func isTest(f *ast.FuncDecl, imported map[string]string) bool {
	for _, p := range f.Type.Params.List {
		t := p.Type
		if star, ok := t.(*ast.StarExpr); ok {
			t = star.X
		}
		from, _, what := selected(t, imported)
		if from == "testing" && slices.Contains([]string{"T", "B", "F", "TB"}, what) {
			return true
		}
	}
	return false
}
