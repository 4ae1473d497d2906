package netfilter

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/rule"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

// testNetworks are those of the host of package test/netfilter, which compares the rule sets with
// netfilter.
var testNetworks = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"),
	netip.MustParsePrefix("10.0.0.1/24"), netip.MustParsePrefix("172.17.0.1/16")}

// testSources reads a rule set of testdata.
func testSources(t testing.TB, name string) (all []Source) {
	t.Helper()
	files := []string{name}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		files, _ = filepath.Glob(name + "/*")
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Source{Name: filepath.Base(f), Text: string(b)})
	}
	return all
}

// TestGolden imports the rule sets of testdata. What they mean is compared with netfilter itself in
// test/netfilter.
func TestGolden(t *testing.T) {
	names, err := filepath.Glob("testdata/*.source")
	if err != nil || len(names) < 20 {
		t.Fatalf("%d rule sets: %v", len(names), err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			result, err := Import(testSources(t, name), Options{Networks: testNetworks})
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(name, ".source") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(result.Text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if result.Text != string(want) {
				t.Errorf("%s differs (-update writes it):\n%s", golden, result.Text)
			}
			if _, err := rule.Compile(result.Rules, rule.CompileOptions{Strict: true}); err != nil {
				t.Errorf("does not compile: %v", err)
			}
		})
	}
}

// FuzzImport reads damaged rule sets: nothing panics, and what is imported can be read back.
func FuzzImport(f *testing.F) {
	names, _ := filepath.Glob("testdata/*.source")
	for _, name := range names {
		for _, s := range testSources(f, name) {
			f.Add(s.Name, s.Text)
		}
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		result, err := Import([]Source{{Name: name, Text: text}}, Options{})
		if err != nil {
			if strings.Contains(err.Error(), "this is a mistake of") {
				t.Fatal(err)
			}
			return
		}
		for l := range strings.Lines(result.Text) {
			if strings.HasPrefix(l, "#") &&
				strings.ContainsAny(strings.TrimSuffix(l, "\n"), "\r\x1b") {
				t.Fatalf("a comment with control characters: %q", l)
			}
		}
	})
}
