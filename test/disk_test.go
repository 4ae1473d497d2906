package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/api"
)

// smallDisk puts the node's state on a file system of its own.
type smallDisk struct {
	t      *testing.T
	dir    string
	filler string
}

func newSmallDisk(t *testing.T, root string) *smallDisk {
	t.Helper()
	d := &smallDisk{t: t, dir: filepath.Join(root, "var")}
	d.filler = filepath.Join(d.dir, "filler")
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", d.dir, "tmpfs", 0, "size=512k,nr_inodes=64"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for unix.Unmount(d.dir, unix.MNT_DETACH) == nil { // with what is mounted over it
		}
	})
	return d
}

func (d *smallDisk) fill() {
	d.t.Helper()
	if err := os.WriteFile(d.filler, make([]byte, 1<<20), 0o600); err == nil {
		d.t.Fatal("the disk is larger than it should be")
	}
}

func (d *smallDisk) free() {
	d.t.Helper()
	if err := os.Remove(d.filler); err != nil {
		d.t.Fatal(err)
	}
}

func (d *smallDisk) readOnly() (undo func()) {
	d.t.Helper()
	unmount, err := readOnly(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	return func() {
		if err := unmount(); err != nil {
			d.t.Fatal(err)
		}
	}
}

// readOnly makes a directory read-only by a mount of it over itself. To remount its file system
// fails while a file is open for writing. Every process that a parallel test starts has for a
// moment, until exec, what this one writes.
func readOnly(dir string) (unmount func() error, err error) {
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return nil, err
	}
	unmount = func() error { return unix.Unmount(dir, unix.MNT_DETACH) }
	err = unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	if err != nil {
		return nil, errors.Join(err, unmount())
	}
	return unmount, nil
}

// problems returns the problems in the status.
func problems(t *testing.T, g *agentNode) string {
	t.Helper()
	out, stderr, _ := g.try("status", "-j") // exit status 1 when there are some
	var s api.Status
	unmarshal(t, out, &s)
	if s.Version == 0 {
		t.Fatalf("no status: %s", stderr)
	}
	return fmt.Sprint(s.Problems)
}

// fullPair is a host whose state is on a small disk, and its client.
type fullPair struct {
	*pair
	disk  *smallDisk
	rules string // the file
}

// enforced wants both verdicts of the rules.
func (p *fullPair) enforced(when string) {
	p.t.Helper()
	reach(p.t, p.client, "http://10.66.0.1/")
	refuse(p.t, p.client, "http://10.66.0.1:81/")
	if p.t.Failed() {
		p.t.Fatal(when)
	}
}

// TestLongFullDisk: a node without space for its state enforces its rules all the same, refuses
// changes whole, reports the fault for as long as it lasts, and starts.
func TestLongFullDisk(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	p := &fullPair{pair: newPair(t)}
	p.disk = newSmallDisk(t, p.root)
	nginx(t, p.server, 80, 81)
	p.rules = p.file("rules",
		"add check-state\nadd allow tcp from any to me 80 setup keep-state\n"+
			"add deny log tcp from any to me 81")
	p.disk.fill()
	p.start("--iface", "eth0", "--rules", p.rules)
	p.enforced("the first start, on a full disk")
	if reported := problems(t, p.agentNode); !strings.Contains(reported, "cannot be saved") ||
		!strings.Contains(reported, "no space left") {
		t.Errorf("the problems are %s", reported)
	}
	p.disk.free()
	eventually(t, "the rules are saved when there is space", func() error {
		if reported := problems(t, p.agentNode); strings.Contains(reported, "cannot be saved") {
			return fmt.Errorf("the problems are %s", reported)
		}
		_, err := os.Stat(filepath.Join(p.root, "var/lib/weir/rules.saved"))
		return err
	})

	p.disk.fill()
	p.refusedChanges()
	p.enforced("changes that were refused")
	p.events()

	for _, when := range []string{"full", "read-only"} {
		undo := p.disk.free
		if p.kill(); when == "full" {
			p.disk.fill()
		} else {
			undo = p.disk.readOnly()
		}
		p.start("--iface", "eth0", "--rules", p.rules)
		p.enforced("a start on a disk that is " + when)
		p.kill()
		undo()
		p.start("--iface", "eth0", "--rules", p.rules)
		if reported := problems(t, p.agentNode); reported != "[]" {
			t.Errorf("afterwards the problems are %s", reported)
		}
	}
}

// refusedChanges makes changes that cannot be saved: none changes anything.
func (p *fullPair) refusedChanges() {
	t := p.t
	t.Helper()
	before := p.weir("fw", "list")
	many := []string{"fw", "table", "x", "add"} // more than fits into what is left of a page
	for i := range 400 {
		many = append(many, fmt.Sprintf("10.1.%d.0/24", i%256), fmt.Sprintf("10.%d.0.0/16", i%256))
	}
	others := p.file("others", "add allow ip from any to any") // the same rules need no space
	for _, change := range [][]string{{"fw", "add", "50", "allow", "tcp", "from", "any", "to", "me",
		"81"}, many, {"fw", "flush", "-f"}, {"fw", "load", others}} {
		if _, stderr, err := p.try(change...); err == nil ||
			!strings.Contains(stderr, "nothing was changed") ||
			!strings.Contains(stderr, "hint: free space there: df -h ") {
			t.Errorf("%v: %v %s", change, err, stderr)
		}
	}
	if now := p.weir("fw", "list"); now != before {
		t.Errorf("the rules were\n%s and are\n%s", before, now)
	}
}

// events: the status reports that events are not kept, the log does so a few times, and both end
// when there is space.
func (p *fullPair) events() {
	t := p.t
	t.Helper()
	eventually(t, "events that cannot be kept are reported", func() error {
		refuse(t, p.client, "http://10.66.0.1:81/")
		if reported := problems(t, p.agentNode); !strings.Contains(reported,
			"events are not kept") {
			return fmt.Errorf("the problems are %s", reported)
		}
		return nil
	})
	if n := strings.Count(p.stderr.String(), "events are not kept"); n > 3 {
		t.Errorf("the log has it %d times", n)
	}
	p.disk.free()
	eventually(t, "events are kept again", func() error {
		refuse(t, p.client, "http://10.66.0.1:81/")
		if reported := problems(t, p.agentNode); reported != "[]" {
			return fmt.Errorf("the problems are %s", reported)
		}
		return nil
	})
}
