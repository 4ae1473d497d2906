package rule

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/weirnet/weir/rule/op"
)

var update = flag.Bool("update", false,
	"rewrite the expected output under testdata; read the difference before you commit it")

// golden compares got with a file, or writes the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs:\n%s", path, firstDifference(got, string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		gl, wl := "(end)", "(end)"
		if i < len(g) {
			gl = g[i]
		}
		if i < len(w) {
			wl = w[i]
		}
		if gl != wl {
			return fmt.Sprintf("line %d\n got  %s\n want %s", i+1, gl, wl)
		}
	}
	return "no difference by lines"
}

// goodFiles are the rule files that must load: those of testdata/good and the examples.
func goodFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, dir := range []string{"testdata/good", "../examples"} {
		found, err := filepath.Glob(dir + "/*.rules")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 5 {
		t.Fatalf("only %d rule files found", len(files))
	}
	return files
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func load(t testing.TB, path string) *Ruleset {
	t.Helper()
	s, err := ParseFile(filepath.Base(path), readFile(t, path), nil)
	if errs := (Errors)(nil); errors.As(err, &errs) {
		t.Fatal("\n" + errs.Report())
	}
	return s
}

func outPath(path, stage string) string {
	return "testdata/good/" + strings.TrimSuffix(filepath.Base(path), ".rules") + "." + stage
}

func TestGood(t *testing.T) {
	for _, path := range goodFiles(t) {
		s := load(t, path)
		golden(t, outPath(path, "parsed"), dumpRuleset(s))
		golden(t, outPath(path, "printed"), printRuleset(s))
	}
}

// TestPrintedLoads reads the printed form of every good file back: it must be the same rule set,
// and print the same.
func TestPrintedLoads(t *testing.T) {
	for _, path := range goodFiles(t) {
		s := load(t, path)
		printed := printRuleset(s)
		again, err := ParseFile("printed", printed, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if got, want := dumpRuleset(again), dumpRuleset(s); got != want {
			t.Errorf("%s: the printed form means something else: %s", path,
				firstDifference(got, want))
		}
	}
}

// badFiles returns the archives of testdata/bad by path, one for each topic.
func badFiles(t testing.TB) map[string]*txtar.Archive {
	t.Helper()
	paths, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*txtar.Archive{}
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = a
	}
	return all
}

// TestBad compares the report of every rule file that must be refused with the expected one, which
// follows it in the archive.
func TestBad(t *testing.T) {
	n := 0
	for path, a := range badFiles(t) {
		for i := 0; i+1 < len(a.Files); i += 2 {
			file, want := &a.Files[i], &a.Files[i+1]
			name := strings.TrimSuffix(file.Name, ".rules")
			if want.Name != name+".want" {
				t.Fatalf("%s: %s follows %s", path, want.Name, file.Name)
			}
			s, err := ParseFile(file.Name, string(file.Data), nil)
			var errs Errors
			if !errors.As(err, &errs) || s != nil {
				t.Errorf("%s: %s was not refused: %v", path, file.Name, err)
				continue
			}
			n++
			if *update {
				want.Data = []byte(errs.Report())
			} else if got := errs.Report(); got != string(want.Data) {
				t.Errorf("%s: %s: %s", path, file.Name, firstDifference(got, string(want.Data)))
			}
		}
		if *update {
			if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n < 140 {
		t.Errorf("only %d files were refused", n)
	}
}

func printRuleset(s *Ruleset) string {
	var b strings.Builder
	for _, name := range keys(s.Tables) {
		fmt.Fprintf(&b, "table %s create missing\n", name)
		for _, e := range s.Tables[name].Entries() {
			fmt.Fprintf(&b, "table %s add %s %d\n", name, e.Prefix, e.Value)
		}
	}
	for _, number := range slices.Sorted(maps.Keys(s.Pipes)) {
		fmt.Fprintf(&b, "pipe %d config %s\n", number, s.Pipes[number])
	}
	for _, number := range slices.Sorted(maps.Keys(s.NATs)) {
		fmt.Fprintf(&b, "nat %d config %s\n", number, FormatNAT(s.NATs[number]))
	}
	for _, r := range s.Rules {
		fmt.Fprintf(&b, "add %s\n", r)
	}
	for set := range 31 {
		if s.Disabled>>set&1 == 1 {
			fmt.Fprintf(&b, "set disable %d\n", set)
		}
	}
	return b.String()
}

func dumpRuleset(s *Ruleset) string {
	var b strings.Builder
	fmt.Fprintf(&b, "disabled %#x\n", s.Disabled)
	for _, name := range keys(s.Tables) {
		fmt.Fprintf(&b, "table %s %v\n", name, s.Tables[name].Entries())
	}
	for _, number := range slices.Sorted(maps.Keys(s.Pipes)) {
		fmt.Fprintf(&b, "pipe %d %+v\n", number, *s.Pipes[number])
	}
	for _, number := range slices.Sorted(maps.Keys(s.NATs)) {
		fmt.Fprintf(&b, "nat %d %+v\n", number, *s.NATs[number])
	}
	for _, r := range s.Rules {
		b.WriteString(dumpRule(r))
	}
	return b.String()
}

// dumpRule shows every field of a rule but Pos.
func dumpRule(r *Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"%d set=%d prob=%g %v/%d log=%v/%d tag=%d state=%+v defer=%v liberal=%v comment=%q\n",
		r.Number, r.Set, r.Prob, r.Action.Op, r.Action.Arg, r.Log, r.LogMax, r.Tag, r.State,
		r.Defer, r.Liberal, r.Comment)
	if r.Action.Op == op.ActionFwd {
		fmt.Fprintf(&b, "  hop %v\n", r.Action.NextHop)
	}
	if r.Rate != (Rate{}) {
		fmt.Fprintf(&b, "  rate %+v\n", r.Rate)
	}
	clause := func(name string, c Clause) {
		if c == nil {
			return
		}
		fmt.Fprintf(&b, "  %s:", name)
		for _, t := range c {
			fmt.Fprintf(&b, " [not=%v %s#%d prefixes=%v ranges=%v name=%q value=%v/%d a=%#x b=%#x]",
				t.Not, t.Op.Word(), t.Op, t.Prefixes, t.Ranges, t.Name, t.HasValue, t.Value,
				t.A, t.B)
		}
		b.WriteString("\n")
	}
	clause("proto", r.Proto)
	clause("src", r.Src)
	clause("srcport", r.SrcPort)
	clause("dst", r.Dst)
	clause("dstport", r.DstPort)
	for _, o := range r.Options {
		clause("option", o)
	}
	return b.String()
}

// synonyms are words that ipfw takes for another one.
var synonyms = []string{"ipv4", "ipv6", "icmptype", "icmp6type", "ipver",
	"defer-immediate-action", "estab", "fragment", "tcpflgs", "ipopts", "src-ipv6", "dst-ipv6"}

// TestExamples holds what other parts of the project rely on.
func TestExamples(t *testing.T) {
	web := strings.Split(readFile(t, "../examples/web.rules"), "\n")
	for _, line := range []string{"add 1 check-state",
		"add allow tcp from any to me 80 setup keep-state"} {
		if !slices.Contains(web, line) {
			t.Errorf("examples/web.rules lost the line %q", line)
		}
	}
	text := readFile(t, "../examples/ipfw.rules")
	if n := strings.Count(text, "\n"); n != 60 {
		t.Errorf("examples/ipfw.rules has %d lines, not 60", n)
	}
	used := make(map[string]bool)
	for _, w := range strings.FieldsFunc(text, func(c rune) bool {
		return strings.ContainsRune(" \n(){},!", c)
	}) {
		used[w] = true
	}
	kept := keys(actions)
	for w := range options {
		kept = append(kept, w)
	}
	kept = append(kept, "log", "logamount", "prob", "set", "me", "me6", "any", "all", "ip", "not",
		"or", "table", "src-addr", "src-port", "dst-addr", "add", "delete", "flush")
	aliases := append([]string{"liberal", "limit-rate", "pipe", "nat", "fwd", "forward", "ip4",
		"ip6", "call"}, synonyms...)
	for _, w := range kept {
		if !used[w] && !slices.Contains(aliases, w) {
			t.Errorf("examples/ipfw.rules does not use %q", w)
		}
	}
}

// TestSamplesAndSSH: whole rule files of the pages and the examples let administrators log in by
// ssh, or say that they do not.
func TestSamplesAndSSH(t *testing.T) {
	samples := map[string]string{}
	for _, name := range []string{"ipfw", "left", "right", "web", "cluster/all"} {
		samples[name] = readFile(t, "../examples/"+name+".rules")
	}
	file := regexp.MustCompile(`(?s)<<'END'\n(.*?)\nEND\n`)
	for _, page := range []string{"tutorial", "overlay", "cluster"} {
		found := file.FindAllStringSubmatch(readFile(t, "../docs/"+page+".md"), -1)
		if len(found) == 0 {
			t.Errorf("docs/%s.md has no rule file", page)
		}
		for i, m := range found {
			if !strings.HasPrefix(m[1], "# Hosts of the role ") { // a part of the rules
				samples[fmt.Sprintf("docs/%s.md, file %d", page, i+1)] = m[1] + "\n"
			}
		}
	}
	for name, text := range samples {
		set, err := ParseFile(name, text, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		missing, err := Omissions(set, Host{})
		if err != nil || slices.Contains(missing, NoSSH) && !strings.Contains(text, "ssh") {
			t.Errorf("%s: missing %v, %v", name, missing, err)
		}
	}
}

// TestSamplesAndNAT: who types what a page shows about nat does not open the host to everyone.
func TestSamplesAndNAT(t *testing.T) {
	for _, page := range []string{"fw-nat", "rules"} {
		found := 0
		for line := range strings.Lines(readFile(t, "../docs/"+page+".md")) {
			if _, config, there := strings.Cut(line, "nat 1 config "); there {
				found++
				if !strings.Contains(config, "deny_in ") {
					t.Errorf("docs/%s.md: %s", page, line)
				}
			}
		}
		if found == 0 {
			t.Errorf("docs/%s.md shows no nat", page)
		}
	}
}

// TestDocumented holds docs/rules.md against the words of the parser, kept and refused, and loads
// its examples.
func TestDocumented(t *testing.T) {
	text := readFile(t, "../docs/rules.md")
	used := make(map[string]bool)
	for _, w := range strings.FieldsFunc(text, func(c rune) bool {
		return strings.ContainsRune(" \n`,|()[]{}:;.", c)
	}) {
		used[w] = true
	}
	for _, w := range slices.Concat(keys(actions), keys(options), keys(commands)) {
		if !used[w] && !slices.Contains(synonyms, w) {
			t.Errorf("docs/rules.md does not explain %q", w)
		}
	}
	blocks := strings.Split(text, "```\n")
	for _, i := range []int{1, 5, 7, 9, 11, 13} {
		for line := range strings.SplitSeq(blocks[i], "\n") {
			for command := range strings.SplitSeq(line, "        ") {
				if _, err := ParseLine(command, nil); err != nil {
					t.Errorf("docs/rules.md: %q: %v", command, err)
				}
			}
		}
	}
	_, err := ParseLine("add allow tcp from any to any uid root", nil)
	if e := (*Error)(nil); !errors.As(err, &e) ||
		!strings.HasPrefix(blocks[15], "web.rules:3:31: "+e.Msg+"\n"+
			strings.SplitN(e.Report(), "\n", 2)[1]) {
		t.Errorf("docs/rules.md shows another report: %s", blocks[15])
	}
}
