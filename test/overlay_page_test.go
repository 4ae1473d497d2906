package test

import (
	"bufio"
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

// shell is a bash in a node, with directories of its own in place of the machine's.
type shell struct {
	t     *testing.T
	in    io.Writer
	lines chan string
}

func newShell(t *testing.T, node *nstest.Node) *shell {
	t.Helper()
	cmd := node.Command("unshare", "-m", "--propagation", "private", "bash")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = to, to
	background(t, cmd)
	to.Close()
	s := &shell{t: t, in: in, lines: make(chan string, 100)}
	go func() {
		defer out.Close()
		for text := bufio.NewScanner(out); text.Scan(); {
			s.lines <- text.Text()
		}
		close(s.lines)
	}()
	t.Cleanup(func() { s.run("weir down\n") })
	s.run(fmt.Sprintf("export PATH=%s:$PATH\nmount -t tmpfs none /mnt && mkdir /mnt/up /mnt/work\n"+
		"mount -t overlay none -o lowerdir=/etc,upperdir=/mnt/up,workdir=/mnt/work /etc\n"+
		"mount -t tmpfs none /run\nmount -t tmpfs none /var/lib\nmount -t tmpfs none /var/log\n"+
		"mount -t bpf none /sys/fs/bpf\n", filepath.Dir(weir)))
	return s
}

// run runs commands and returns what they print.
func (s *shell) run(commands string) string {
	s.t.Helper()
	const end = "these commands ended"
	fmt.Fprintf(s.in, "%secho; echo %s\n", commands, end)
	var b strings.Builder
	for timeout := time.After(testTimeout); ; {
		select {
		case line, ok := <-s.lines:
			if line == end {
				return b.String()
			}
			if !ok {
				s.t.Fatalf("the shell ended after\n%s\nit printed\n%s", commands, &b)
			}
			b.WriteString(line + "\n")
		case <-timeout:
			s.t.Fatalf("no end of\n%s\nit printed\n%s", commands, &b)
		}
	}
}

// TestLongOverlayPage does on two hosts what the page says.
func TestLongOverlayPage(t *testing.T) {
	need(t, "ping", "unshare", "ip")
	t.Parallel()
	all := steps(t, "../docs/overlay.md")
	if len(all) != 8 {
		t.Fatalf("the page has %d steps", len(all))
	}
	lab := nstest.New(t)
	nodes := [2]*nstest.Node{lab.Node("a"), lab.Node("b")}
	lab.Join(nodes[0], "eth0", "192.0.2.1/24", nodes[1], "eth0", "192.0.2.2/24")
	hosts := [2]*shell{newShell(t, nodes[0]), newShell(t, nodes[1])}
	var keys [2]string
	for i, host := range []int{0, 1, 0, 1, 1, 0, 1, 0} {
		commands := strings.NewReplacer("KEY-OF-A", keys[0], "KEY-OF-B",
			keys[1]).Replace(all[i].commands)
		printed := hosts[host].run(commands)
		if wrong := agrees(all[i].output, printed); wrong != nil {
			t.Fatalf("after\n%s%v; it printed\n%s", commands, wrong, printed)
		}
		if i < 2 {
			keys[host] = regexp.MustCompile(`(?m)^[A-Za-z0-9+/]{43}=$`).FindString(printed)
		}
	}
}
