package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// TestBashCompletes asks a real bash what it would offer.
func TestBashCompletes(t *testing.T) {
	var script bytes.Buffer
	bashCompletion(&script, verbs())
	for line, want := range map[string]string{
		"weir f":            "fw flow",
		"weir fw l":         "list lint load",
		"weir flow w":       "watch",
		"weir flow watch -": "--from --past --since -f -j",
		"weir doctor --b":   "--bundle",
		"weir up --i":       "--iface",
	} {
		words := strings.Fields(line)
		call := "COMP_WORDS=(" + line + "); COMP_CWORD=" + string(rune('0'+len(words)-1)) + "; _weir; echo ${COMPREPLY[*]}"
		out, err := exec.Command("bash", "-c", script.String()+call).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q offers %q, want %q (%v)", line, got, want, err)
		}
	}
}

// TestOtherShellsReadTheirs: the scripts parse, where the shell is here, and name every verb.
func TestOtherShellsReadTheirs(t *testing.T) {
	var zsh, fish bytes.Buffer
	zshCompletion(&zsh, verbs())
	fishCompletion(&fish, verbs())
	for shell, script := range map[string]string{"zsh": zsh.String(), "fish": fish.String()} {
		for _, v := range verbs() {
			for _, word := range strings.Fields(v.name) {
				if !strings.Contains(script, word) {
					t.Errorf("%s does not know %s", shell, v.name)
				}
			}
		}
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		cmd := exec.Command(shell, "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", shell, err, out)
		}
	}
}
