package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestArguments: words that make no sense are refused before anything is made, with an error that
// names them. Flags may follow arguments.
func TestArguments(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"", "missing command"},
		{"ini", `unknown command "ini"`},
		{"remove", "remove: missing NAME\nhint: weir-store remove --help"},
		{"remove a b", `unexpected "b"`},
		{"remove a -sign=", "the value of --sign is empty"},
		{"remove --nonsense", "flag provided but not defined: -nonsense"},
		{"backup ''", "FILE is empty"},
		{"backup -sign x y", "flag provided but not defined: -sign"},
		{"invite --role ''", "the value of --role is empty"},
		{"invite --for 1", `invalid value "1" for flag -for`},
		{"init x", `unexpected "x"`},
		{"init -address http://a", "is not HOST:PORT"},
		{"init -address a:b:c", "is not HOST:PORT"},
		{"init -address a:0", "is not HOST:PORT"},
		{"init -address 10.0.0.1:99999", "is not HOST:PORT"},
		{"init -address a@b", "is not HOST:PORT"},
		{"init -address a -listen b", "is not ADDRESS:PORT"},
		{"init -sign f", "--sign needs --from-copy"},
		{"init -texts d", "--texts needs --from-copy"},
		{"init -from-copy d -signed", "follows from the copy"},
		{"init -etcd nonsense", "is not a URL"},
		{"init -etcd-cert f", "--etcd-cert needs --etcd"},
		{"init -pool 10.0.0.0/8", "is not NETWORK:LENGTH"},
		{"init -pool 127.0.0.0/8:24", "whose addresses no pod can have"},
		{"init -pool 0.0.0.0/0:24", "whose addresses no pod can have"},
		{"init -pool 10.64.0.0/16:32", "at least four addresses"},
		{"init -pool 10.64.0.0/16:24 -pool 10.0.0.0/8:24", "overlaps 10.64.0.0/16"},
		{"init -pool 10.64.0.0/16:24 -pool 10.65.0.0/16:24", "a host has one range of IPv4"},
		{"init -pool fd00:1::/48:64 -pool 10.65.0.0/16:24 -pool fd00:2::/48:64",
			"a host has one range of IPv6"},
		{"grow b a:b:c f", "is not HOST:PORT"},
		{"grow b c f -peer-port x", "is not a port"},
		{"grow b c f -peer x", "is not HOST:PORT"},
	} {
		dir := filepath.Join(t.TempDir(), "store")
		words := strings.Fields(c.line)
		for i := range words {
			words[i] = strings.Trim(words[i], "'")
		}
		if len(words) > 1 {
			words = append(words, "-dir", dir)
		}
		var out, messages bytes.Buffer
		err := run(t.Context(), "weir-store", words, &out, &messages)
		if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("weir-store %s: %v; want %s", c.line, err, c.want)
		}
		if _, err := os.Lstat(dir); err == nil {
			t.Errorf("weir-store %s has made the directory", c.line)
		}
	}
}

// TestInitTwice: once the cluster is made, an init with other words changes nothing, also while
// weir-store does not run. TestInitAgain has those with the same words.
func TestInitTwice(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	before, err := os.ReadFile(filepath.Join(a.dir, configFile))
	if err != nil {
		t.Fatal(err)
	}
	said := a.fails(t, "init", "-name", "a", "-address", a.address, "-admin-file", l.adminFile())
	if !strings.Contains(said, "the cluster is made already") {
		t.Errorf("without the pools: %s", said)
	}
	after, err := os.ReadFile(filepath.Join(a.dir, configFile))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("config.json is now %s, %v", after, err)
	}
}

// TestServeTwice: a second weir-store of a directory ends at once, and the first one continues.
func TestServeTwice(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	a.serve(t)
	if said := a.fails(t, "serve"); !strings.Contains(said, "it runs already") {
		t.Errorf("a second weir-store: %s", said)
	}
	l.join(t, a, "b")
}

// TestInitOnFullDisk: without space init fails, and says so. With space it is run again.
func TestInitOnFullDisk(t *testing.T) {
	l := newLab(t)
	a := l.newHost(t, "a")
	smallDisk(t, a.dir, "20m")
	words := []string{"init", "-name", "a", "-address", a.address, "-admin-file", l.adminFile()}
	if said := a.fails(t, words...); !strings.Contains(said, "no space left on device: free ") ||
		strings.Contains(said, "goroutine") {
		t.Errorf("on a full disk: %s", said)
	}
	if err := syscall.Mount("", a.dir, "", syscall.MS_REMOUNT, "size=200m"); err != nil {
		t.Fatal(err)
	}
	a.run(t, words...)
	a.serve(t)
}

// TestCalledByWeir: weir runs weir-store by the name of its own command, which help, errors and
// hints then have.
func TestCalledByWeir(t *testing.T) {
	h := &host{dir: t.TempDir()}
	for args, want := range map[string]string{
		"init --help": "usage: weir cluster init [options]\n",
		"init --sign f": "weir: cluster init: --sign needs --from-copy\n" +
			"hint: weir cluster init --help\n",
	} {
		c := h.command(strings.Fields(args)...)
		c.Args[0] = "weir cluster"
		if said, _ := c.CombinedOutput(); !strings.HasPrefix(string(said), want) {
			t.Errorf("weir cluster %s: %s", args, said)
		}
	}
}
