package device_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "copy the files again")

const library = "github.com/tailscale/wireguard-go"

// own are the files of this directory that are not copies.
var own = map[string]bool{"session.go": true}

// instead are packages of the library in whose place the copy has our own.
var instead = map[string]string{
	library + "/tai64n": "github.com/weirnet/weir/overlay/internal/tai64n",
}

// TestCopy: every file but our own is that of the library's version in go.mod, to the byte but for
// some imports, below a line that says so. After a change of that version, `go test
// ./overlay/internal/device -update` copies the new files.
func TestCopy(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", library).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	want := map[string][]byte{}
	files, err := filepath.Glob(filepath.Join(dir, "device", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			head := fmt.Sprintf("// Code generated from %s/device %s. DO NOT EDIT.\n\n", library,
				version)
			text := read(t, f)
			for theirs, ours := range instead {
				text = bytes.ReplaceAll(text, []byte(`"`+theirs+`"`), []byte(`"`+ours+`"`))
			}
			want[filepath.Base(f)] = append([]byte(head), text...)
		}
	}
	want["LICENSE"] = read(t, filepath.Join(dir, "LICENSE"))
	for name, text := range want {
		if own[name] {
			t.Errorf("the library has a file %s, too", name)
		} else if *update {
			if err := os.WriteFile(name, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	here, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(here, "LICENSE") {
		text, theirs := want[name]
		delete(want, name)
		switch {
		case own[name] || strings.HasSuffix(name, "_test.go"):
		case !theirs && *update:
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		case !theirs:
			t.Errorf("the library has no file %s", name)
		case !bytes.Equal(read(t, name), text):
			t.Errorf("%s is not the library's", name)
		}
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
