package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// edit is a line of the source that a build has otherwise.
type edit struct{ file, from, to string }

// twoLayouts builds two binaries whose maps have different layouts and that read each other's
// states, from a copy of the source in the working directory. Where no upgrade is wanted, both are
// the binary under siege.
func (c config) twoLayouts(wanted []restart) (weirs [2]string, err error) {
	weirs = [2]string{c.weir, c.weir}
	if c.short || !slices.ContainsFunc(wanted, func(k restart) bool { return k.upgrade }) {
		return weirs, nil
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("weir-%d-layouts-", os.Getpid()))
	if err != nil {
		return weirs, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	source := filepath.Join(dir, "source")
	if err := copyTree(source); err != nil {
		return weirs, err
	}
	for i, edits := range layoutEdits {
		for _, e := range edits {
			if err := e.apply(source); err != nil {
				return weirs, err
			}
		}
		weirs[i] = filepath.Join(dir, fmt.Sprintf("weir%d", i))
		for _, args := range [][]string{{"generate", "./firewall/kernel"},
			{"build", "-trimpath", "-o", weirs[i], "./cmd/weir"}} {
			cmd := exec.Command("go", args...)
			cmd.Dir = source
			if out, err := cmd.CombinedOutput(); err != nil {
				return weirs, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
			}
		}
	}
	return weirs, os.RemoveAll(source)
}

// removeLayouts removes what twoLayouts has built.
func (c config) removeLayouts() {
	if c.weirs[0] != c.weir {
		os.RemoveAll(filepath.Dir(c.weirs[0]))
	}
}

// layoutEdits make a Weir that an upgrade from the next layout may go back to, and that next one.
var layoutEdits = [2][]edit{
	{{"firewall/kernel/previous_pins.go", "p.layout > layout {", "p.layout > layout+1 {"}},
	{{"firewall/kernel/constants/shared.go", `"LAYOUT", "layout", `, `"LAYOUT", "layout", 1 + `}},
}

// apply makes an edit, which has to fit exactly once.
func (e edit) apply(dir string) error {
	path := filepath.Join(dir, e.file)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := strings.Count(string(b), e.from); n != 1 {
		return fmt.Errorf("%s has %q %d times, not once", e.file, e.from, n)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(b), e.from, e.to, 1)), 0o644)
}

// copyTree copies the module in the working directory, without what is built or hidden.
func copyTree(to string) error {
	if _, err := os.Stat("go.mod"); err != nil {
		return fmt.Errorf("the upgrade is built from the source: run it in the repository: %w", err)
	}
	entries, err := os.ReadDir(".")
	if err := errors.Join(err, os.MkdirAll(to, 0o755)); err != nil {
		return err
	}
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), "."), e.Name() == "bin", e.Name() == "bench-out":
		case e.IsDir():
			err = os.CopyFS(filepath.Join(to, e.Name()), os.DirFS(e.Name()))
		default:
			var b []byte
			if b, err = os.ReadFile(e.Name()); err == nil {
				err = os.WriteFile(filepath.Join(to, e.Name()), b, 0o644)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
