package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// step is a block of commands of a page and what the page says that they print.
type step struct{ commands, output string }

// steps reads the blocks of a Markdown page: ```sh, perhaps followed by ```text.
func steps(t *testing.T, page string) []step {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var all []step
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?")
	for _, m := range blocks.FindAllStringSubmatch(string(text), -1) {
		all = append(all, step{m[1], m[2]})
	}
	return all
}

// agrees reports whether the lines that a page promises stand in the output, in this order. "..."
// is anything, and blanks between columns may be more or fewer.
func agrees(promised, output string) error {
	rest := output
	for line := range strings.Lines(promised) {
		pattern := regexp.QuoteMeta(strings.TrimSpace(line))
		pattern = strings.ReplaceAll(pattern, `\.\.\.`, `.*`)
		pattern = regexp.MustCompile(` +`).ReplaceAllString(pattern, ` +`)
		at := regexp.MustCompile(`(?m)^ *` + pattern + `.*$`).FindStringIndex(rest)
		if at == nil {
			return fmt.Errorf("there is no line %q in what is left", strings.TrimSpace(line))
		}
		rest = rest[at[1]:]
	}
	return nil
}

// TestTutorial does what the tutorial says, in a namespace, with directories of its own in place of
// the machine's.
func TestTutorial(t *testing.T) {
	need(t, "tcpdump", "ping", "unshare")
	t.Parallel()
	all := steps(t, "../docs/tutorial.md")
	if len(all) < 10 {
		t.Fatalf("the tutorial has %d steps", len(all))
	}
	lab := nstest.New(t)
	client, server := lab.Node("client"), lab.Node("server")
	lab.Join(client, "eth0", "10.66.0.2/24", server, "eth0", "10.66.0.1/24")
	background(t, client.Command("ping", "-i", "0.2", "10.66.0.1"))

	dir := t.TempDir()
	var script strings.Builder
	// No command of the page may reach the machine's own directories.
	script.WriteString("set -e\nmount -t tmpfs none /run\nmount -t tmpfs none /var/lib\n" +
		"mount -t bpf none /sys/fs/bpf\n")
	fmt.Fprintf(&script, "export PATH=%s:$PATH\ncd %s\n", filepath.Dir(weir), dir)
	for i, s := range all {
		fmt.Fprintf(&script, "{\n%s} > out.%d 2>&1\n", s.commands, i)
	}
	cmd := server.Command("unshare", "-m", "--propagation", "private", "bash", "-c",
		script.String())
	out, err := cmd.CombinedOutput()
	for i, s := range all {
		printed, missing := os.ReadFile(filepath.Join(dir, fmt.Sprintf("out.%d", i)))
		if missing != nil {
			t.Errorf("the tutorial ended before\n%s", s.commands)
			break
		}
		if wrong := agrees(s.output, string(printed)); wrong != nil {
			t.Errorf("after\n%s%v; it printed\n%s", s.commands, wrong, printed)
		}
	}
	if err != nil {
		t.Errorf("the commands ended with %v\n%s", err, out)
	}
	if t.Failed() {
		log, _ := os.ReadFile(filepath.Join(dir, "weir.log"))
		t.Logf("the agent printed:\n%s", log)
	}
}
