package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent"
	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/cluster"
)

// administers has a host join, and gives it the credential of the administrator.
func (s *joinable) administers(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	s.join(t, root)
	text, err := s.admin.MarshalPEM()
	if err != nil {
		t.Fatal(err)
	}
	file := agent.Paths{Root: root}.Admin()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

// TestListOfCluster: what the store has of the rules is printed as text and as JSON. The states of
// this node are not part of either.
func TestListOfCluster(t *testing.T) {
	s := newJoinable(t)
	root := s.administers(t)
	const text = "# web\nadd 7 allow tcp from any to any 80\n"
	if _, _, err := admin.Load(t.Context(), s.model, admin.Loading{Scope: cluster.All, Name: "f",
		Text: text, By: "me", Parse: ruleParser()}); err != nil {
		t.Fatal(err)
	}
	list := func(status int, flags string) (string, string) {
		t.Helper()
		var out, messages bytes.Buffer
		words := append([]string{"--root", root, "fw", "list"}, strings.Fields(flags)...)
		if got := run(t.Context(), words, strings.NewReader(""), &out, &messages); got != status {
			t.Fatalf("weir fw list %s: status %d: %s", flags, got, &messages)
		}
		return out.String(), messages.String()
	}
	if got, _ := list(0, "--on all"); got != text {
		t.Errorf("the text of a scope: %q", got)
	}
	got, _ := list(0, "-j --on all")
	var scope clusterText
	if err := json.Unmarshal([]byte(got), &scope); err != nil ||
		scope != (clusterText{1, "1.1", "all", text}) {
		t.Errorf("the text of a scope as JSON: %s, %v", got, err)
	}
	got, _ = list(0, "-j --node b")
	var node clusterRules
	if err := json.Unmarshal([]byte(got), &node); err != nil || node.Rules != "1.1" ||
		len(node.List) != 1 || node.List[0].Number != 7 || node.List[0].Scope != "all" {
		t.Errorf("the rules of a host: %s, %v", got, err)
	}
	for _, flags := range []string{"-j -d", "-j -D"} {
		if _, said := list(2, flags); !strings.Contains(said, "weir fw states -j") {
			t.Errorf("%s: %s", flags, said)
		}
	}
	for _, flags := range []string{"-d --on all", "-t --node b", "--on all --node b",
		"--on all 7"} {
		if _, said := list(2, flags); !strings.Contains(said, "nothing else") {
			t.Errorf("%s: %s", flags, said)
		}
	}
}
