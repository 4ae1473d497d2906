package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirnet/weir/agent/api"
)

// storeProgram serves the store. It is a program of its own: agents carry no etcd.
const storeProgram = "weir-store"

// storeCommand runs weir-store with the same arguments.
func storeCommand(c *call) action {
	var args []string
	c.cmd.DisableFlagParsing = true
	c.cmd.Args = func(_ *cobra.Command, all []string) error {
		args = all
		return nil
	}
	return func() error {
		passed, err := c.storeArguments(args)
		if err != nil {
			return err
		}
		program, err := findStore()
		if err != nil {
			return c.failed(err)
		}
		group, word, _ := strings.Cut(c.command.name, " ")
		run := exec.CommandContext(c.ctx, program, append([]string{word}, passed...)...)
		run.Args[0] = "weir " + group // its help and its errors have that name
		run.Stdin, run.Stdout, run.Stderr = c.in, c.out, c.stderr
		var exit *exec.ExitError
		if err := run.Run(); errors.As(err, &exit) {
			return statusError(max(exit.ExitCode(), 1))
		} else if err != nil {
			return c.failed(err)
		}
		return nil
	}
}

// storeArguments are the arguments for weir-store: without the flags that select the node, whose
// root is that of the store's files, too.
func (c *call) storeArguments(args []string) (passed []string, err error) {
	root := ""
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(args[i], "=")
		if name != "--root" && name != "--bpffs" {
			passed = append(passed, args[i])
			continue
		}
		if !given {
			if i++; i == len(args) {
				return nil, c.wrong("flag needs an argument: %s", name)
			}
			value = args[i]
		}
		if name == "--root" {
			root = value
		}
	}
	if root == "" {
		return passed, nil
	}
	c.node.root = root
	own := []string{"--dir", filepath.Join(absolute(root), "var/lib/weir-store")}
	if c.command.name == "cluster init" {
		own = append(own, "--admin-file", c.paths().Admin())
	}
	return append(own, passed...), nil
}

// findStore finds weir-store beside this program, or in the path.
func findStore() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), storeProgram)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	program, err := exec.LookPath(storeProgram)
	if err != nil {
		return "", errNoStore{err}
	}
	return program, nil
}

// errNoStore means that this host cannot be a store host.
type errNoStore struct{ error }

func (e errNoStore) Unwrap() error { return e.error }

// Hint returns what to do.
func (errNoStore) Hint() string { return "install weir-store on the hosts that keep the store" }

// clusterAcceptCommand removes what the host holds though the store lost it.
func clusterAcceptCommand(c *call) action {
	return func() error {
		var done api.Done
		if err := c.post("/v1/cluster/accept", nil, &done); err != nil {
			return err
		}
		fmt.Fprintln(c.out, c.show(done.Message))
		return nil
	}
}
