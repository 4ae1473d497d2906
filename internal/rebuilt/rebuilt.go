// Package rebuilt runs a test again, in a build in which constants of a library have other values:
// what takes WireGuard minutes can be seen in seconds.
package rebuilt

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// File is a file of a library, with the values that its constants shall have, by name.
type File struct {
	Module, Path string
	Constants    map[string]string
}

// inside is set in the environment of a test that was built so.
const inside = "WEIR_REBUILT"

// With runs the calling test in a build with the changed files and returns true, with the outcome
// logged; in that build it returns false and the test does its work. It fails the test when it
// cannot be built, or fails there.
func With(t *testing.T, files ...File) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return false
	}
	mod := filepath.Join(t.TempDir(), "rebuilt.mod")
	module := filepath.Dir(list(t, "{{.GoMod}}"))
	text := read(t, filepath.Join(module, "go.mod"))
	for _, f := range files {
		text = append(text, "\nreplace "+f.Module+" => "+f.copied(t)+"\n"...)
	}
	write(t, mod, text)
	write(t, strings.TrimSuffix(mod, ".mod")+".sum", read(t, filepath.Join(module, "go.sum")))
	again := exec.Command("go", "test", "-modfile", mod, "-count=1", "-v", "-run", "^"+t.Name()+"$",
		".")
	again.Env = append(os.Environ(), inside+"=1")
	out, err := again.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return true
}

// copied is where the module is with the constants changed.
func (f File) copied(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "module")
	if err := os.CopyFS(dir, os.DirFS(list(t, "{{.Dir}}", f.Module))); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, f.Path)
	text := read(t, name)
	for constant, value := range f.Constants {
		line := regexp.MustCompile(`(?m)^(\s*` + constant + `\s*=).*$`)
		if len(line.FindAll(text, -1)) != 1 {
			t.Fatalf("%s of %s has no line for %s", f.Path, f.Module, constant)
		}
		text = line.ReplaceAll(text, []byte("${1} "+value))
	}
	write(t, name, text)
	return dir
}

// list asks go list about a module, without a name about this one.
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

// write replaces a file, also one that is read-only.
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
