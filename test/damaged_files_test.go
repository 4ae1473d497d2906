package test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// stateFiles reads what a node keeps on disk.
func stateFiles(t *testing.T, state string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		all[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryFileDamaged starts the agent with all files of its state damaged at once, in one way
// after the other, and with a peer whose name cannot be resolved. It starts. What the rules deny
// and allow, by names of pods and labels too, is denied and allowed at every moment.
func TestEveryFileDamaged(t *testing.T) {
	t.Parallel()
	damageEveryFile(t, "garbage", "newer", "cut at 4/8")
}

// TestLongEveryFileDamaged has the other ways.
func TestLongEveryFileDamaged(t *testing.T) {
	t.Parallel()
	damageEveryFile(t, "empty", "cut at 1/8", "cut at 2/8", "cut at 3/8", "cut at 5/8",
		"cut at 6/8", "cut at 7/8")
}

func damageEveryFile(t *testing.T, ways ...string) {
	t.Helper()
	r := newRestarts(t, 6)
	state, rules := filepath.Join(r.root, "var/lib/weir"), filepath.Join(r.root, "etc/weir/rules")
	r.weir("peer", "add", "far", "--key", strings.Repeat("B", 43)+"=", "--endpoint",
		"nowhere.example:51820", "--pods", "10.99.0.0/24")
	r.weir("fw", "add", "5", "count", "ip", "from", "any", "to", "any")
	whole := stateFiles(t, state)
	for _, name := range []string{"rules.saved", "peers.json", "key", "sysctls.json",
		"pods/gateways"} {
		if whole[filepath.Join(state, name)] == nil {
			t.Fatalf("there is no %s among the %d files of a node", name, len(whole))
		}
	}
	version := regexp.MustCompile(`(?im)("version": |^# weir saved rules )[0-9]+`)
	damages := map[string]func([]byte) []byte{
		"empty": func([]byte) []byte { return nil },
		"garbage": func(b []byte) []byte {
			return bytes.Repeat([]byte("\x00\xff{garbage"), 1+len(b)/10)
		},
		"newer": func(b []byte) []byte { return version.ReplaceAll(b, []byte("${1}99")) },
	}
	for i := 1; i < 8; i++ {
		damages[fmt.Sprintf("cut at %d/8", i)] = func(b []byte) []byte { return b[:len(b)*i/8] }
	}
	for _, what := range ways {
		r.kill()
		for path := range stateFiles(t, state) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		for path, text := range whole {
			if err := os.WriteFile(path, damages[what](text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.start("--rules", rules)
		reported := problems(t, r.agentNode)
		if reported == "[]" {
			t.Errorf("%s: the status reports nothing", what)
		}
		if what != "newer" && strings.Count(reported, "pod record") != 6 {
			t.Errorf("%s: of the pods the status reports %s", what, reported)
		}
		r.check(what)
		if out := r.weir("pod", "list"); strings.Count(out, "10.88.0.") < 6 {
			t.Errorf("%s: the pods are\n%s", what, out)
		}
	}
}
