package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDamagedRecordOfPeers: a node whose record of peers is damaged works and reports it. It keeps
// the ranges that it can read off the default route, and leaves the damaged file for its owner. One
// of a later version is not touched.
func TestDamagedRecordOfPeers(t *testing.T) {
	t.Parallel()
	h := newLeakHosts(t, allowAll)
	h.meet()
	rules, record := filepath.Join(h.left.root, "etc/weir/rules"),
		filepath.Join(h.left.root, "var/lib/weir/peers.json")
	whole, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	_, right := h.keys()
	restart := func(text string) *flooding {
		t.Helper()
		h.left.stop()
		h.left.host.IP("route flush type unreachable")
		h.left.host.IP("-6 route flush type unreachable")
		if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		h.left.start("--rules", rules)
		return flood(t, h.left.host)
	}
	newer := strings.Replace(string(whole), `"version": 1`, `"version": 7`, 1)
	f := restart(newer)
	h.never(t, "a record of a later version", func() {
		h.left.problem(t, "of version 7")
		if _, stderr, err := h.left.try("peer", "remove", "right"); err == nil ||
			!strings.Contains(stderr, "of version 7") {
			t.Errorf("weir peer remove: %v\n%s", err, stderr)
		}
		time.Sleep(100 * time.Millisecond)
	})
	f.stop()
	if now, err := os.ReadFile(record); err != nil || string(now) != newer {
		t.Errorf("a record of a later version was changed: %s, %v", now, err)
	}
	defer restart(string(whole[:len(whole)-5])).stop()
	h.never(t, "a damaged record", func() {
		h.left.problem(t, "damaged")
		if p := h.left.peers(); len(p.Peers) != 0 || len(p.Held) != 1 || len(p.Held[0].Pods) != 2 {
			t.Errorf("of a damaged record is known %+v", p)
		}
		h.left.weir("peer", "add", "right", "--key", right, "--endpoint", "10.66.0.2:51820",
			"--pods", "10.88.2.0/24,fd00:88:2::/120")
		aside, err := filepath.Glob(record + ".damaged*")
		if err != nil || len(aside) != 1 {
			t.Fatalf("set aside are %v, %v", aside, err)
		}
		if err := os.Remove(aside[0]); err != nil {
			t.Fatal(err)
		}
		h.left.problem(t, "")
	})
	if p := h.left.peers(); len(p.Peers) != 1 || len(p.Held) != 0 {
		t.Errorf("after the peer was added again: %+v", p)
	}
}

// TestLongPeersOnAFullDisk: a change that cannot be recorded is none.
func TestLongPeersOnAFullDisk(t *testing.T) {
	need(t, "nginx", "curl")
	t.Parallel()
	h := newLeakHosts(t, allowAll)
	h.meet()
	web, webPod := h.right.attach("web")
	nginx(t, web, 80)
	at := pageAt(webPod.Addrs[0], 80)
	reach(t, h.left.host, at)
	state := filepath.Join(h.left.root, "var/lib/weir")
	key, err := os.ReadFile(filepath.Join(state, "key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("full", state, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(state, unix.MNT_DETACH)
	if err := os.WriteFile(filepath.Join(state, "key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	fill := filepath.Join(state, "fill")
	os.WriteFile(fill, make([]byte, 64<<10), 0o600) // as much as fits
	before, routes := fmt.Sprintf("%+v", h.left.peers().Peers[0].Pods), footprint(t, h.left)
	_, right := h.keys()
	h.never(t, "changes on a full disk", func() {
		defer flood(t, h.left.host).stop()
		for _, args := range [][]string{
			{"remove", "right"},
			{"remove", "--release", "right"},
			{"add", "right", "--key", right, "--endpoint", "10.66.0.2:51820", "--pods",
				"10.88.3.0/24"},
			{"add", "third", "--key", strings.Repeat("B", 43) + "=", "--pods", "10.99.0.0/24"},
		} {
			if _, stderr, err := h.left.try(append([]string{"peer"}, args...)...); err == nil ||
				!strings.Contains(stderr, "no space left on device") {
				t.Errorf("weir peer %v: %v\n%s", args, err, stderr)
			}
			if p := h.left.peers(); len(p.Peers) != 1 || len(p.Held) != 0 ||
				fmt.Sprintf("%+v", p.Peers[0].Pods) != before {
				t.Errorf("after weir peer %v the peers are %+v", args, p)
			}
			if now := footprint(t, h.left); now != routes {
				t.Errorf("after weir peer %v the routes are\n%s\nbefore they were\n%s", args, now,
					routes)
			}
			reach(t, h.left.host, at)
		}
	})
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	h.left.weir("peer", "remove", "right")
	if p := h.left.peers(); len(p.Peers) != 0 {
		t.Errorf("with space again: %+v", p)
	}
}
