package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// testSettings are what tests may read from the environment. They say how strict a run is, which
// random input is played, how a test starts itself again, and what was built elsewhere for it. How
// long a run takes is not among them: a test for `make test-long` has a name that begins with
// TestLong.
var testSettings = []string{"WEIR_CI", "WEIR_SEED", "WEIR_DECISIONS", "WEIR_OBJECT",
	"WEIR_BINARY", "WEIR_LINK"}

// instead says how tests are divided.
const instead = "let the name of a test for make test-long begin with TestLong"

// setting is how names of the project's settings are written.
var setting = regexp.MustCompile(`^WEIR_[A-Z_]+$`)

// Runs lists every place in the tests below root that divides them by other means than their names:
// testing.Short, and settings from the environment.
func Runs(root string) ([]string, error) {
	all, err := files(root, func(name string) bool {
		return goFile(name) && strings.HasSuffix(name, "_test.go")
	})
	if err != nil {
		return nil, err
	}
	var found []string
	for name, text := range all {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		checkRuns(file, reporter(fset, &found))
	}
	slices.Sort(found)
	return found, nil
}

func checkRuns(file *ast.File, report reportFunc) {
	imported := imports(file)
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch from, _, what := selected(call.Fun, imported); from + "." + what {
		case "testing.Short":
			report(n, "testing.Short: "+instead)
		case "os.Getenv", "os.LookupEnv":
			lit, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				return true
			}
			if key, err := strconv.Unquote(lit.Value); err == nil && setting.MatchString(key) &&
				!slices.Contains(testSettings, key) {
				report(n, "%s: not a setting of tests (internal/arch/runs.go); %s", key, instead)
			}
		}
		return true
	})
}

// long finds tests of `make test-long`, anyTest all of them, in the tables of SECURITY.md.
var (
	long    = regexp.MustCompile("`TestLong[A-Z0-9]\\w*`")
	anyTest = regexp.MustCompile("`(?:Test|Fuzz)[A-Z0-9]\\w*`")
)

// onlyLong lists the lines of tables all of whose tests run in `make test-long` alone.
func onlyLong(page string) (found []string) {
	for line := range strings.Lines(page) {
		all := len(anyTest.FindAllString(line, -1))
		if strings.HasPrefix(line, "|") && all > 0 && len(long.FindAllString(line, -1)) == all {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
