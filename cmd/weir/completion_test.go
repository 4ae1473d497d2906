package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// offers has the completions of a line.
var offers = map[string]string{
	"weir f":            "fw flow",
	"weir fw l":         "list lint load",
	"weir flow w":       "watch",
	"weir flow watch -": "--from --me --names --past --since -f -j",
	"weir flow top --e": "--every",
	"weir doctor --b":   "--bundle",
	"weir up --i":       "--iface",
}

// TestBashCompletes completes lines with a real bash.
func TestBashCompletes(t *testing.T) {
	var script bytes.Buffer
	bashCompletion(&script, verbs())
	for line, want := range offers {
		words := strings.Fields(line)
		call := "COMP_WORDS=(" + line + "); COMP_CWORD=" + string(rune('0'+len(words)-1)) +
			"; _weir; echo ${COMPREPLY[*]}"
		out, err := exec.Command("bash", "-c", script.String()+call).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q offers %q, want %q (%v)", line, got, want, err)
		}
	}
}

// TestFishCompletes completes lines with a real fish.
func TestFishCompletes(t *testing.T) {
	var script bytes.Buffer
	fishCompletion(&script, verbs())
	file := filepath.Join(t.TempDir(), "weir.fish")
	if err := os.WriteFile(file, script.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range offers {
		out, err := shell(t, "fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]",
			file, line).CombinedOutput()
		got := strings.Fields(string(out))
		slices.Sort(got)
		all := strings.Fields(want)
		slices.Sort(all)
		if err != nil || !slices.Equal(got, all) {
			t.Errorf("%q offers %q, want %q (%v)", line, got, all, err)
		}
	}
}

// TestZshCompletes types into a real zsh on a terminal, with tabs, and checks what it runs.
func TestZshCompletes(t *testing.T) {
	var script bytes.Buffer
	zshCompletion(&script, verbs())
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "_weir"), script.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "watch-no-file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := shell(t, "zsh", "-f", "-i")
	cmd.Args = []string{"script", "-qec", strings.Join(cmd.Args, " "), "/dev/null"}
	cmd.Path, _ = exec.LookPath("script")
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader("fpath=(" + dir +
		" $fpath); autoload -U compinit; compinit -u -D; weir() { print -r -- \"RAN:$*:\" }\n" +
		"weir flow w\t\nweir fw st\t\nweir doctor --b\t\nweir up --i\t\nexit\n")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"RAN:flow watch:", "RAN:fw states:", "RAN:doctor --bundle:",
		"RAN:up --iface:"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("zsh does not run %q: %v\n%q", want, err, out)
		}
	}
}

// shell is a command of a shell, which must be installed with WEIR_CI=1.
func shell(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("WEIR_CI") == "1" {
			t.Fatalf("NOT TESTED: %s is missing, and WEIR_CI=1 forbids to skip", name)
		}
		t.Skipf("NOT TESTED: %s is missing", name)
	}
	return exec.Command(name, args...)
}
