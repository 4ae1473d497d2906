package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/api"
)

// TestRuleFileOfOthers: a rule file that others than root could change is a warning, of a load too.
func TestRuleFileOfOthers(t *testing.T) {
	x := newExplainer(t, "add allow ip from any to any\n")
	b := x.Manager
	b.config.File = filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(b.config.File, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	load := func() string {
		t.Helper()
		done, err := x.Load(t.Context(), api.Load{Name: "rules",
			Text: "add allow ip from any to any\n"})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(done.Warnings, "\n")
	}
	if w := load(); w != "" {
		t.Errorf("of root alone: %s", w)
	}
	if err := os.Chmod(b.config.File, 0o666); err != nil {
		t.Fatal(err)
	}
	if w := load(); !strings.Contains(w, "others than root can change "+b.config.File) {
		t.Errorf("writable by everyone: %q", w)
	}
}

// TestRuleFileThatIsAPipe: a start does not wait for someone to write to it.
func TestRuleFileThatIsAPipe(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "rules")
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &savedRules{path: filepath.Join(dir, "rules.saved")}
	if _, err := s.first(file, false); err == nil ||
		!strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%v", err)
	}
	if keepSSH(nil, file, nil) {
		t.Error("it has rules")
	}
}
