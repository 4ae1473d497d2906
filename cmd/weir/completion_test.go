package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestMain lets the test binary be weir itself, for the shells: their scripts ask it. The tests
// have one time zone, set before any goroutine can read it: a server's may outlive its test.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "weir" {
		main()
	}
	time.Local = time.UTC
	os.Exit(m.Run())
}

// offers has the completions of a line. The word completed is the last one.
var offers = map[string]string{
	"weir f":                 "fw flow",
	"weir fw l":              "list lint load",
	"weir flow w":            "watch",
	"weir flow watch --n":    "--names",
	"weir flow top --e":      "--every",
	"weir flow top --sort b": "bytes",
	"weir doctor --b":        "--bpffs --bundle",
	"weir up --i":            "--iface",
	"weir up --iface l":      "lo",
	"weir fw table all l":    "list lookup",
	"weir completion b":      "bash",
	"weir help fw wh":        "why",
}

// binary puts weir and its completion script for a shell into a directory.
func binary(t *testing.T, shell string) (dir, script string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "weir")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	var out bytes.Buffer
	if status := run(t.Context(), []string{"completion", shell}, nil, &out, &out); status != 0 {
		t.Fatalf("status %d: %s", status, &out)
	}
	script = filepath.Join(dir, "_weir")
	if err := os.WriteFile(script, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, script
}

// TestBashCompletes completes lines with a real bash, which inserts all completions (COMP_TYPE 37).
func TestBashCompletes(t *testing.T) {
	const library = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(library); err != nil {
		lacks(t, library)
	}
	_, script := binary(t, "bash")
	for line, want := range offers {
		out, err := exec.Command("bash", "-c", `. "$0"; . "$1"; COMP_LINE=$2; COMP_WORDS=($2)
			COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_POINT=${#COMP_LINE} COMP_TYPE=37
			__start_weir; echo "${COMPREPLY[@]}"`, library, script, line).Output()
		compare(t, line, want, string(out), err)
	}
}

// compare compares completions in any order.
func compare(t *testing.T, line, want, got string, err error) {
	t.Helper()
	g, w := strings.Fields(got), strings.Fields(want)
	slices.Sort(g)
	slices.Sort(w)
	if err != nil || !slices.Equal(g, w) {
		t.Errorf("%q offers %q, want %q (%v)", line, g, w, err)
	}
}

// TestFishCompletes completes lines with a real fish.
func TestFishCompletes(t *testing.T) {
	_, script := binary(t, "fish")
	for line, want := range offers {
		out, err := shell(t, "fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]",
			script, line).CombinedOutput()
		words := ""
		for l := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(l, "\t")
			words += word + " "
		}
		compare(t, line, want, words, err)
	}
}

// TestZshCompletes types into a real zsh on a terminal, with tabs, and checks what it runs.
func TestZshCompletes(t *testing.T) {
	dir, _ := binary(t, "zsh")
	if err := os.WriteFile(filepath.Join(dir, "watch-no-file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := shell(t, "zsh", "-f", "-i")
	cmd.Args = []string{"script", "-qec", strings.Join(cmd.Args, " "), "/dev/null"}
	cmd.Path, _ = exec.LookPath("script")
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader("fpath=(" + dir + " $fpath); autoload -U compinit; " +
		"compinit -u -D; weir() { if [[ $1 = __complete ]]; then command weir \"$@\"; " +
		"else print -r -- \"RAN:$*:\"; fi }\n" +
		"weir flow w\t\nweir fw st\t\nweir doctor --bu\t\nweir up --i\t\nexit\n")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"RAN:flow watch", "RAN:fw states", "RAN:doctor --bundle",
		"RAN:up --iface"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("zsh does not run %q: %v\n%q", want, err, out)
		}
	}
}

// TestHostileNamesAreNotCompleted: bash inserts without quoting what several values share.
func TestHostileNamesAreNotCompleted(t *testing.T) {
	names := []string{"web", "$(reboot)1", "$(reboot)2", "a b", "`x`", "\x1b[2J", "pod-1.a:b/c@d",
		"\u202e", "", "x;y", "-v"}
	c := completer(func([]string) []cobra.Completion { return slices.Clone(names) })
	got, directive := c(nil, nil, "")
	if want := []string{"web", "pod-1.a:b/c@d"}; !slices.Equal(got, want) ||
		directive != cobra.ShellCompDirectiveNoFileComp {
		t.Errorf("completions are %q (%v), want %q", got, directive, want)
	}
}

// lacks skips a test, or fails it with WEIR_CI=1.
func lacks(t *testing.T, name string) {
	t.Helper()
	if os.Getenv("WEIR_CI") == "1" {
		t.Fatalf("NOT TESTED: %s is missing, and WEIR_CI=1 forbids to skip", name)
	}
	t.Skipf("NOT TESTED: %s is missing", name)
}

// shell is a command of a shell, which must be installed with WEIR_CI=1.
func shell(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		lacks(t, name)
	}
	return exec.Command(name, args...)
}
