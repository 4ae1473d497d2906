// Package rebuilt runs a test again in a build in which constants of a library have other values.
// So a test can check in seconds what takes WireGuard minutes.
package rebuilt

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// File is a file of a module, with the new values of its constants, by name.
type File struct {
	Module, Path string
	Constants    map[string]string
}

// inside is set in the environment of a test in such a build.
const inside = "WEIR_REBUILT"

// With runs the calling test again in a build with the changed files, logs its output and returns
// true. In that build it returns false, and the test does its work. The calling test fails if the
// build or the test in it fails.
func With(t *testing.T, files ...File) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return false
	}
	mod := filepath.Join(t.TempDir(), "rebuilt.mod")
	module := filepath.Dir(list(t, "{{.GoMod}}"))
	text := read(t, filepath.Join(module, "go.mod"))
	replaced := map[string]string{}
	for _, f := range files {
		if dir := list(t, "{{.Dir}}", f.Module); downloaded(t, dir) {
			text = append(text, "\nreplace "+f.Module+" => "+f.copied(t, dir)+"\n"...)
		} else {
			name := filepath.Join(t.TempDir(), filepath.Base(f.Path))
			write(t, name, f.changed(t, dir))
			replaced[filepath.Join(dir, f.Path)] = name
		}
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	instead, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	write(t, overlay, instead)
	write(t, mod, text)
	write(t, strings.TrimSuffix(mod, ".mod")+".sum", read(t, filepath.Join(module, "go.sum")))
	again := exec.Command("go", "test", "-modfile", mod, "-overlay", overlay, "-count=1", "-v",
		"-run", "^"+t.Name()+"$", ".")
	again.Env = append(os.Environ(), inside+"=1")
	out, err := again.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return true
}

// downloaded reports whether a directory is in the module cache, whose files the go command does
// not replace one by one.
func downloaded(t *testing.T, dir string) bool {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatalf("go env: %v", err)
	}
	return strings.HasPrefix(dir, strings.TrimSpace(string(out))+string(filepath.Separator))
}

// copied returns the directory of a copy of the module in dir with the changed constants.
func (f File) copied(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "module")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(to, f.Path), f.changed(t, dir))
	return to
}

// changed returns the text of the file with the changed constants.
func (f File) changed(t *testing.T, dir string) []byte {
	t.Helper()
	text := read(t, filepath.Join(dir, f.Path))
	for constant, value := range f.Constants {
		line := regexp.MustCompile(`(?m)^(\s*` + constant + `\s*=).*$`)
		if len(line.FindAll(text, -1)) != 1 {
			t.Fatalf("%s of %s has no line for %s", f.Path, f.Module, constant)
		}
		text = line.ReplaceAll(text, []byte("${1} "+value))
	}
	return text
}

// list runs go list -m for a module, or for the main module if there is no name.
func list(t *testing.T, format string, module ...string) string {
	t.Helper()
	out, err := exec.Command("go",
		append([]string{"list", "-m", "-f", format}, module...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// write replaces a file, even a read-only one.
func write(t *testing.T, name string, text []byte) {
	t.Helper()
	err := os.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(name, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
