package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStoreWords: weir-store gets the words as they are, flags too; --root selects the store's
// files as it selects the node's. Its exit status is that of the verb.
func TestStoreWords(t *testing.T) {
	dir := t.TempDir()
	const script = "#!/bin/sh\necho \"$@\"\nexit 3\n"
	if err := os.WriteFile(filepath.Join(dir, storeProgram), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for line, want := range map[string]string{
		"cluster init --name a -pool 10.0.0.0/8:24": "init --name a -pool 10.0.0.0/8:24",
		"cluster invite --help":                     "invite --help",
		"node remove b":                             "remove b",
		"cluster backup --root /r f":                "backup --dir /r/var/lib/weir-store f",
		"--root=/r cluster init --name a": "init --dir /r/var/lib/weir-store --admin-file " +
			"/r/etc/weir/admin.pem --name a",
	} {
		var out, messages bytes.Buffer
		status := run(t.Context(), strings.Fields(line), nil, &out, &messages)
		got := strings.TrimSpace(out.String())
		if got != want || status != 3 || messages.Len() > 0 {
			t.Errorf("weir %s runs weir-store %q, status %d, %s", line, got, status, &messages)
		}
	}
	t.Setenv("PATH", t.TempDir())
	var out, messages bytes.Buffer
	status := run(t.Context(), []string{"cluster", "invite"}, nil, &out, &messages)
	if status != 1 ||
		!strings.Contains(messages.String(), "install weir-store") {
		t.Errorf("without weir-store: status %d, %s", status, &messages)
	}
}

// TestAloneHasNoCluster: on a host without a cluster the verbs of one say so.
func TestAloneHasNoCluster(t *testing.T) {
	root := t.TempDir()
	rules := filepath.Join(root, "rules")
	if err := os.WriteFile(rules, []byte("add allow ip from any to any\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"node list", "fw load --on all " + rules} {
		var out, messages bytes.Buffer
		words := append([]string{"--root", root}, strings.Fields(line)...)
		if status := run(t.Context(), words, nil, &out, &messages); status != 1 ||
			!strings.Contains(messages.String(), "has not joined a cluster") {
			t.Errorf("weir %s: status %d, %s", line, status, &messages)
		}
	}
	for _, line := range []string{"join nonsense", "fw load --on web " + rules} {
		var out, messages bytes.Buffer
		words := append([]string{"--root", root}, strings.Fields(line)...)
		if status := run(t.Context(), words, nil, &out, &messages); status != 2 {
			t.Errorf("weir %s: status %d, %s", line, status, &messages)
		}
	}
}
