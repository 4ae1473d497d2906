// Package test holds the tests of the whole binary: scripts that any user could type, and
// topologies of network namespaces in which real programs communicate through it.
package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// weir is the path of the binary under test.
var weir string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "weir-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if weir = os.Getenv("WEIR_BINARY"); weir != "" { // where there is no compiler
			return m.Run()
		}
		weir = filepath.Join(dir, "weir")
		build := exec.Command("go", "build", "-o", weir, "github.com/weirnet/weir/cmd/weir")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "building weir:", err)
			return 1
		}
		return m.Run()
	}())
}

// TestScripts runs testdata/*.txtar: what the binary does without root.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(weir)+string(os.PathListSeparator)+os.Getenv("PATH"))
			return nil
		},
		RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"wrong": wrongUsage,
		},
		Condition: func(name string) (bool, error) {
			if name == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
	})
}

// wrongUsage is the script command `wrong PROGRAM...`: the program must end with status 2, print
// nothing on stdout and something on stderr.
func wrongUsage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: wrong PROGRAM [ARG]...")
	}
	err := ts.Exec(args[0], args[1:]...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		ts.Fatalf("want exit status 2, got %v", err)
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("wrong usage wrote to stdout: %q", out)
	}
	if ts.ReadFile("stderr") == "" {
		ts.Fatalf("wrong usage wrote nothing to stderr")
	}
}
