// Command run runs the tests of all modules of the project.
//
//	run short [FLAGS]   those that every commit has to pass before it is made
//	run long [FLAGS]    the others: tests whose name begins with TestLong
//	run check           fails if a test passed in neither of the last two runs
//
// FLAGS are flags of go test. The names alone divide the tests: a test is in exactly one of the
// two runs, and `go test` without flags runs both kinds. What failed is printed as go test prints
// it, what passed is not.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// longTests is the pattern of the names of tests of the long run.
const longTests = "^TestLong[A-Z0-9]"

// modules are the directories of the modules with tests that every commit has to pass.
var modules = []string{".", "store/etcd"}

// first are the packages that take longest. They begin first.
var first = []string{"github.com/weirnet/weir/test", "github.com/weirnet/weir/firewall/kernel",
	"github.com/weirnet/weir/overlay", "github.com/weirnet/weir/test/siege"}

// records is where the results of the last runs are, below the main module.
const records = "bin/tests"

func main() {
	// The go command gets them, too: this one reports what was done so far.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	switch {
	case len(args) > 0 && (args[0] == "short" || args[0] == "long"):
		return runTests(args[0], args[1:], out)
	case len(args) == 1 && args[0] == "check":
		return check(modules, records)
	}
	return errors.New("usage: run short|long [FLAGS of go test], or run check")
}

// runTests runs one kind of tests in all modules and records what became of them.
func runTests(kind string, flags []string, out io.Writer) error {
	began := time.Now()
	r := newReport(out)
	ended := make(chan error, len(modules))
	for _, dir := range modules {
		go func() { ended <- runModule(kind, dir, flags, r) }()
	}
	var errs []error
	for range modules {
		errs = append(errs, <-ended)
	}
	r.summary(time.Since(began))
	return errors.Join(append(errs, r.save(filepath.Join(records, kind)))...)
}

func runModule(kind, dir string, flags []string, r *report) error {
	which, packages, err := selection(kind, dir)
	if err != nil || len(packages) == 0 {
		return err
	}
	var env []string
	if kind == "short" && os.Getenv("GOGC") == "" {
		// Compilers, tests and agents end soon: to collect less often saves a tenth of their time.
		// The long run has the tests of how much memory an agent takes.
		env = append(os.Environ(), "GOGC=400")
	}
	// Most tests wait more than they compute: several run side by side on each processor. `make
	// check` vets all packages.
	args := slices.Concat([]string{"-vet", "off", "-timeout", "45m", "-p", "4", "-parallel", "6",
		which, longTests}, flags, packages)
	if err := goTest(dir, env, r, args); err != nil {
		return fmt.Errorf("module %s: %w", dir, err)
	}
	return nil
}

// selection returns the flag of go test that takes the pattern of long tests, and the packages of a
// module in which to look for tests.
func selection(kind, dir string) (which string, packages []string, err error) {
	if kind == "long" {
		packages, err = withLongTests(dir)
		slices.SortStableFunc(packages, func(a, b string) int { return order(a) - order(b) })
		return "-run", packages, err
	}
	if dir == "." {
		packages = slices.Clone(first)
	}
	return "-skip", append(packages, "./..."), nil
}

// order is a package's place among first, or the one behind it.
func order(pkg string) int {
	if i := slices.Index(first, pkg); i >= 0 {
		return i
	}
	return len(first)
}

// goTest runs go test in a module. An env of nil is that of this process.
func goTest(dir string, env []string, r *report, args []string) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, env, os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = r.read(events)
	if err != nil {
		cmd.Process.Kill()
	}
	return errors.Join(err, cmd.Wait())
}
