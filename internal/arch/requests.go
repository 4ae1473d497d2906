package arch

import (
	"go/ast"
	"path"
	"strings"
)

// mayWaitLong are the packages of the agent whose requests to the kernel may take as long as
// package nl lets them, and why. The watchdog waits for others: they ask through agent/routes.
var mayWaitLong = map[string]string{
	"agent/routes":    "it bounds them",
	"agent/doctor":    "it is a command",
	"agent/hostfacts": "it is a command",
	"agent/services":  "the watchdog is patient with its lock",
}

// Requests lists every place in the Go files of the agent below root that opens a certain
// connection to the kernel. On such a connection a request may take longer than the watchdog waits.
func Requests(root string) ([]string, error) {
	return program(root, func(name string, file *ast.File, report reportFunc) {
		dir := path.Dir(name)
		if mayWaitLong[rankedPackage(dir)] != "" || !strings.HasPrefix(dir+"/", "agent/") {
			return
		}
		imported := imports(file)
		ast.Inspect(file, func(n ast.Node) bool {
			from, as, what := selected(n, imported)
			if from == module+"/internal/nl" && what == "Open" {
				report(n, "%s.Open: use routes.Open, whose requests end in time", as)
			}
			return true
		})
	})
}
