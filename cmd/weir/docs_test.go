package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/doctor"
)

// TestEveryCommandHasAPage: docs/ is the source of the manual pages, so each command has one that
// begins with its name and shows its usage as the binary does.
func TestEveryCommandHasAPage(t *testing.T) {
	top := newCommand(t.Context(), nil, io.Discard, io.Discard)
	for _, v := range commands() {
		page := filepath.Join("..", "..", "docs", strings.ReplaceAll(v.name, " ", "-")+".md")
		text, err := os.ReadFile(page)
		if err != nil {
			t.Errorf("%s: %v", v.name, err)
			continue
		}
		if !strings.HasPrefix(string(text), "# weir "+v.name) {
			t.Errorf("%s does not begin with its name", page)
		}
		cmd, _, _ := top.Find(strings.Fields(v.name))
		// a usage may be broken into lines
		if usage := cmd.UseLine(); !strings.Contains(strings.Join(strings.Fields(string(text)),
			" "),
			usage) {
			t.Errorf("%s does not have the usage: %s", page, usage)
		}
	}
}

// answers are what the commands with -j print, or the page that has it. Those of an event and of a
// packet of a replay are written by hand, in observe and replay_output.go; that of the demo repeats
// those of others.
var answers = map[string]any{
	"status": api.Status{}, "fw why": api.Explanation{}, "fw states": api.States{},
	"flow top": api.Top{}, "peer list": api.Peers{}, "peer key": api.PeerKey{},
	"fw check": checkAnswer{}, "doctor": doctor.Report{}, "version": versionAnswer{},
	"setup": setupAnswer{}, "dial": dialAnswer{}, "import": importAnswer{},
	"fw lint": lintAnswer{}, "fw set": api.Sets{}, "fw pipe": api.Pipes{}, "fw nat": api.NATs{},
	"fw show": []any{api.Rules{}, clusterRules{}, clusterText{}}, "fw list": "fw-show.md",
	"fw table":  api.Tables{},
	"node list": hostsAnswer{}, "cluster keys": keysAnswer{}, "pod list": api.Pods{},
	"pod label": "pod-list.md", "service list": api.Services{}, "service add": "service-list.md",
	"flow watch": nil, "fw replay": nil, "demo": nil,
}

// TestPagesNameTheJSON: the page of each command with -j names every key of its answer.
func TestPagesNameTheJSON(t *testing.T) {
	for _, v := range commands() {
		answer, known := answers[v.name]
		if reads := !slices.Contains(changing, v.name); reads != known {
			t.Errorf("%s takes -j: %v; it is among the answers: %v", v.name, reads, known)
		}
		if answer == nil {
			continue
		}
		page := strings.ReplaceAll(v.name, " ", "-")
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page+".md"))
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := answer.(string); ok {
			if !strings.Contains(string(text), "("+other+")") {
				t.Errorf("docs/%s.md does not lead to %s", page, other)
			}
			continue
		}
		all, several := answer.([]any)
		if !several {
			all = []any{answer}
		}
		for _, one := range all {
			for _, key := range keysOf(reflect.TypeOf(one)) {
				if !strings.Contains(string(text), `"`+key+`"`) &&
					!strings.Contains(string(text), "`"+key+"`") {
					t.Errorf("docs/%s.md lacks %q", page, key)
				}
			}
		}
	}
}

// keysOf returns the keys of a struct in JSON, and of those in it. The table of states has a page.
func keysOf(v reflect.Type) (keys []string) {
	for v.Kind() == reflect.Slice || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil
	}
	for f := range v.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "" || key == "-" {
			continue
		}
		if keys = append(keys, key); key != "table" {
			keys = append(keys, keysOf(f.Type)...)
		}
	}
	return keys
}

func TestCommandNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range commands() {
		if seen[v.name] {
			t.Errorf("%s twice", v.name)
		}
		seen[v.name] = true
		if v.brief == "" || strings.HasSuffix(v.brief, ".") || v.declare == nil {
			t.Errorf("%s: brief %q", v.name, v.brief)
		}
	}
}
