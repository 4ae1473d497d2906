package test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// disorder is something that is not as the agent left it.
type disorder struct {
	what    string
	spoil   func() (repair func() error, err error)
	problem string // what the status names; "" for nothing
}

// disorders are those of the directory of a node's state, and of what else it needs.
func (r *restarts) disorders(state string) []disorder {
	r.t.Helper()
	pods, err := filepath.Glob(filepath.Join(state, "pods", "*.json"))
	if err != nil || len(pods) == 0 {
		r.t.Fatal(pods, err)
	}
	spoil := func(path, text string) func() (func() error, error) {
		return func() (func() error, error) {
			old, err := os.ReadFile(path)
			if errors.Is(err, os.ErrNotExist) {
				return func() error {
					return os.RemoveAll(path)
				}, os.WriteFile(path, []byte(text), 0o600)
			}
			return func() error {
				return os.WriteFile(path, old, 0o600)
			}, errors.Join(err, os.WriteFile(path, []byte(text), 0o600))
		}
	}
	return []disorder{
		{"the saved rules are empty", spoil(filepath.Join(state, "rules.saved"), ""), ""},
		{"the record of the gateways is garbage",
			spoil(filepath.Join(state, "pods", "gateways"), "\x00\x01{"), ""},
		{"the record of a pod is cut", spoil(recordOf(r.t, pods, "p4"), `{"Network": "`), ""},
		{"the record of peers is empty", spoil(filepath.Join(state, "peers.json"), ""), "peer"},
		{"the record of peers is cut",
			spoil(filepath.Join(state, "peers.json"), `{"version": 1, "pee`), "peer"},
		{"a file is where the journal should be", func() (func() error, error) {
			dir := filepath.Join(state, "events")
			return func() error {
				return os.Remove(dir)
			}, errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600))
		}, "events"},
		{"the disk is full", func() (func() error, error) {
			return full(state)
		}, "saved"},
		{"the disk is read-only", func() (func() error, error) {
			return readOnly(state)
		}, "read-only"},
		{"another process locks the directory of the socket", func() (func() error, error) {
			d, err := os.Open(filepath.Join(r.root, "run/weir"))
			if err != nil {
				return nil, err
			}
			return d.Close, unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}, ""},
		{"the port of the metrics is taken", func() (func() error, error) {
			l, err := r.host.Listen("tcp", "127.0.0.1:9642")
			if err != nil {
				return nil, err
			}
			r.file("etc/weir/weir.toml", podSettings+"[observe]\nmetrics = \"127.0.0.1:9642\"\n")
			return func() error { r.file("etc/weir/weir.toml", podSettings); return l.Close() }, nil
		}, "metrics"},
		{"there is no network", func() (func() error, error) {
			link, err := r.host.Netlink().LinkByName("eth0")
			if err != nil {
				return nil, err
			}
			if err := r.host.Netlink().SetLinkDown(link.Index); err != nil {
				return nil, err
			}
			return func() error { return r.host.Netlink().SetLinkUp(link.Index) }, nil
		}, ""},
	}
}

// TestRulesComeFirst starts the agent with everything but its rules in some way out of order. It
// starts, and its rules are in force at every moment. What is wrong is in the status, and goes from
// there when it is over.
func TestRulesComeFirst(t *testing.T) {
	t.Parallel()
	r := newRestarts(t, 6)
	state := filepath.Join(r.root, "var/lib/weir")
	rules := filepath.Join(r.root, "etc/weir/rules")
	for _, c := range r.disorders(state) {
		r.kill()
		repair, err := c.spoil()
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		r.patient = c.what == "there is no network" // the last one: what is sent meanwhile is lost
		r.start("--rules", rules)
		out, stderr, _ := r.try("status")
		if c.problem != "" && !strings.Contains(out+stderr, c.problem) {
			t.Errorf("%s: the status does not say so:\n%s%s", c.what, out, stderr)
		}
		if c.what != "there is no network" {
			r.check(c.what)
		}
		if err := repair(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if c.what == "there is no network" {
			// The routes by way of the card went with it, those of the neighbour are still there.
			r.check(c.what)
		}
	}
	r.stop()
	for _, dir := range []string{state, filepath.Join(state, "pods")} { // what the status asks for
		aside, err := filepath.Glob(filepath.Join(dir, "*.damaged-*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range aside {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.start("--rules", rules)
	if out, stderr, err := r.try("status"); err != nil {
		t.Errorf("when all is over: %v\n%s%s", err, out, stderr)
	}
}

// recordOf returns which of some records is that of a pod.
func recordOf(t *testing.T, records []string, name string) string {
	t.Helper()
	for _, path := range records {
		if text, err := os.ReadFile(path); err != nil {
			t.Fatal(err)
		} else if strings.Contains(string(text), `"`+name+`"`) {
			return path
		}
	}
	t.Fatalf("there is no record of %s", name)
	return ""
}

// full mounts a small disk with what a directory holds over it, and fills it.
func full(dir string) (unmount func() error, err error) {
	held, err := os.MkdirTemp("", "weir-small-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(held)
	if err := os.CopyFS(held, os.DirFS(dir)); err != nil {
		return nil, err
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		return nil, err
	}
	unmount = func() error { return unix.Unmount(dir, unix.MNT_DETACH) }
	if err := fillWith(dir, held); err != nil {
		return nil, errors.Join(err, unmount())
	}
	return unmount, nil
}

// fillWith copies what held has to the disk at dir and writes there until it is full.
func fillWith(dir, held string) error {
	if err := os.CopyFS(dir, os.DirFS(held)); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		return err
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	return nil
}
