package test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// hostStep is a step that a page does on one of several hosts.
type hostStep struct {
	host string
	step
}

// hostSteps reads the blocks of a page of several hosts. The text before each ends in "On HOST:".
func hostSteps(t *testing.T, page string) (all []hostStep) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(
		"(?ms)\\bOn\\s(\\w+):\n\n```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?")
	for _, m := range blocks.FindAllStringSubmatch(string(text), -1) {
		all = append(all, hostStep{m[1], step{m[2], m[3]}})
	}
	if n := strings.Count(string(text), "```sh\n"); n != len(all) {
		t.Fatalf("%s has %d blocks of commands, and %d that name a host", page, n, len(all))
	}
	return all
}

// hostShell runs in a host's namespaces, with directories of its own in place of the
// machine's.
type hostShell struct {
	t    *testing.T
	name string
	dir  string
	in   io.Writer
	n    int
}

// newHostShell starts a shell. A command systemctl does what systemd does with the units of dist,
// as far as a page needs it.
func newHostShell(t *testing.T, node *nstest.Node, name, dir string) *hostShell {
	t.Helper()
	units, err := filepath.Abs("../dist")
	if err != nil {
		t.Fatal(err)
	}
	control, err := filepath.Abs("testdata/systemctl")
	if err != nil {
		t.Fatal(err)
	}
	cmd := node.Command("unshare", "-mu", "--propagation", "private", "bash")
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	printed := new(programOutput)
	cmd.Stdout, cmd.Stderr = printed, printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // it ends what it has started
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("the shell of %s ended with %v", name, err)
		}
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, printed)
		}
	})
	s := &hostShell{t: t, name: name, dir: dir, in: in}
	s.do(fmt.Sprintf(`hostname %s
mount -t tmpfs none /run
cp -a /etc /run/etc
mount --bind /run/etc /etc
mount -t tmpfs none /var/lib
mount -t bpf none /sys/fs/bpf
mkdir -p /run/netns /run/bin /etc/weir
ln -s %s /run/bin/systemctl
export PATH=/run/bin:%s:$PATH UNITS=%s
`, name, control, filepath.Dir(weir), units))
	return s
}

// do runs commands and returns what they print. None of them may fail.
func (s *hostShell) do(commands string) string {
	s.t.Helper()
	s.n++
	out := filepath.Join(s.dir, fmt.Sprintf("%s.out.%d", s.name, s.n))
	done := filepath.Join(s.dir, fmt.Sprintf("%s.done.%d", s.name, s.n))
	fmt.Fprintf(s.in, `set -e
ended=%s
trap 'echo $? > $ended.part; mv $ended.part $ended; kill $(jobs -p) 2> /dev/null || true' EXIT
{
%s} > %s 2>&1
echo 0 > $ended.part; mv $ended.part $ended; trap 'kill $(jobs -p) 2> /dev/null || true' EXIT
`, done, commands, out)
	status := ""
	for deadline := time.Now().Add(testTimeout); status == ""; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(done)
		if status = strings.TrimSpace(string(text)); err != nil && time.Now().After(deadline) {
			s.t.Fatalf("on %s, this does not end:\n%s", s.name, commands)
		}
	}
	text, err := os.ReadFile(out)
	if err != nil || status != "0" {
		s.t.Fatalf("on %s, status %s (%v) after\n%sIt printed\n%s", s.name, status, err, commands,
			text)
	}
	return string(text)
}

// TestLongClusterTutorial does what the tutorial of many hosts says, on three hosts of one network.
func TestLongClusterTutorial(t *testing.T) {
	need(t, "unshare", "busybox", "curl", "ip")
	if _, err := storeProgram(); err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	all := hostSteps(t, "../docs/cluster.md")
	if len(all) < 24 {
		t.Fatalf("the tutorial has %d steps", len(all))
	}
	lab := nstest.New(t)
	network := lab.Node("network")
	link := func(args ...string) {
		t.Helper()
		if out, err := network.Command("ip", append([]string{"link"},
			args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip link %v: %v\n%s", args, err, out)
		}
	}
	link("add", "br0", "type", "bridge")
	link("set", "br0", "up")
	dir := t.TempDir() // what is carried from host to host is there
	shells := map[string]*hostShell{}
	for i, name := range []string{"hub", "web1", "db1"} {
		node, port := lab.Node(name), fmt.Sprint("port", i)
		lab.Join(network, port, "", node, "eth0", fmt.Sprintf("10.66.0.%d/24", i+1))
		link("set", port, "master", "br0")
		shells[name] = newHostShell(t, node, name, dir)
		shells[name].do("systemctl enable --now weir\nweir status --wait 1m\n")
	}
	for _, s := range all {
		if shells[s.host] == nil {
			t.Fatalf("the tutorial has no host %s", s.host)
		}
		printed := shells[s.host].do(s.commands)
		if wrong := agrees(s.output, printed); wrong != nil {
			t.Errorf("on %s, after\n%s%v; it printed\n%s", s.host, s.commands, wrong, printed)
		}
	}
	for _, file := range []string{"all.rules", "web.rules", "db.rules"} {
		shown, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		shipped, err := os.ReadFile(filepath.Join("../examples/cluster", file))
		if err != nil {
			t.Fatal(err)
		}
		if string(shown) != string(shipped) {
			t.Errorf("the tutorial shows another %s than examples/cluster has", file)
		}
	}
}
