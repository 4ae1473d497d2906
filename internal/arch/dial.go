package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// mayDial are the packages that may connect and look up names themselves, and why. All others dial
// through package eyeballs: it races the addresses of a name, so that a slow one delays nothing.
var mayDial = map[string]string{
	"eyeballs":        "the others dial through it",
	"pod/dns":         "it connects to addresses of resolvers only",
	"udp":             "its sockets take addresses only",
	"internal/nl":     "it connects inside namespaces, to addresses only",
	"internal/nstest": "it builds networks for tests",
	"store/storetest": "its proxy of tests connects to addresses only",
}

// dials are functions and types that connect or look up without package eyeballs.
var dials = map[string][]string{
	"net": {"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialIP", "DialUnix", "Dialer", "Resolver",
		"DefaultResolver",
		"ResolveTCPAddr", "ResolveUDPAddr", "ResolveIPAddr", "LookupHost", "LookupIP", "LookupAddr",
		"LookupCNAME"},
	"net/http":   {"Get", "Head", "Post", "PostForm", "DefaultClient", "DefaultTransport"},
	"crypto/tls": {"Dial", "DialWithDialer", "Dialer"},
}

// dialsByDefault are types whose zero value dials by itself, and their fields of which one has to
// be set.
var dialsByDefault = map[string][]string{
	"Client":    {"Transport"},
	"Transport": {"DialContext"},
}

// Dials lists every place in the program's Go files below root that connects to something, or looks
// a name up, without package eyeballs. Tests, benchmarks, examples and tools may.
func Dials(root string) ([]string, error) {
	return program(root, func(name string, file *ast.File, report reportFunc) {
		if _, may := mayDial[rankedPackage(path.Dir(name))]; !may {
			checkDials(file, report)
		}
	})
}

// program lists what check reports of the program's Go files below root, without tests, benchmarks,
// examples and tools.
func program(root string, check func(name string, file *ast.File, report reportFunc)) (
	found []string, err error) {
	all, err := files(root, func(name string) bool {
		top, _, _ := strings.Cut(name, "/")
		return goFile(name) && !strings.HasSuffix(name, "_test.go") &&
			!slices.Contains([]string{"test", "peers", "examples", "tools"}, top) &&
			!strings.HasPrefix(name, "store/etcd/cmd/bench-cluster/")
	})
	if err != nil {
		return nil, err
	}
	for name, text := range all {
		if copied(name, text) {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		check(name, file, reporter(fset, &found))
	}
	slices.Sort(found)
	return found, nil
}

func checkDials(file *ast.File, report reportFunc) {
	imported := imports(file)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			from, as, what := selected(n, imported)
			if slices.Contains(dials[from], what) {
				report(n, "%s.%s: dial with package eyeballs", as, what)
			}
		case *ast.CompositeLit:
			from, as, what := selected(n.Type, imported)
			if from != "net/http" {
				return true
			}
			for _, field := range dialsByDefault[what] {
				if !sets(n, field) {
					report(n, "%s.%s without %s: let it dial with package eyeballs", as, what,
						field)
				}
			}
		}
		return true
	})
}

// sets reports whether a composite literal gives a field a value.
func sets(lit *ast.CompositeLit, field string) bool {
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == field {
				return true
			}
		}
	}
	return false
}

// majorVersion is the last part of an import path that is not the package's name.
var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// imports maps the names under which a file knows packages to their paths.
func imports(file *ast.File) map[string]string {
	imported := map[string]string{}
	for _, i := range file.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		name := path.Base(p)
		if majorVersion.MatchString(name) {
			name = path.Base(path.Dir(p))
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		imported[name] = p
	}
	return imported
}

// selected returns the path of the package from which an expression selects something, the name
// that the file has for the package, and what is selected. All are "" for other expressions.
func selected(n ast.Node, imported map[string]string) (from, as, what string) {
	if s, ok := n.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return imported[x.Name], x.Name, s.Sel.Name
		}
	}
	return "", "", ""
}
