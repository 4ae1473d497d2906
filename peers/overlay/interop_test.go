package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/rebuilt"
)

// TestMain lets the test's binary be a node.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "node" {
		if err := node(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// others are the other WireGuard implementations.
var others = []string{upstream, fork}

func open(t *testing.T, a, b string, wires ...string) *tunnel {
	t.Helper()
	tn, err := openMixed(nstest.New(t), [2]string{a, b}, wires, true)
	if err != nil {
		t.Fatal(err)
	}
	return tn
}

// testTimeout is for what has to come, on however busy a machine.
const testTimeout = 5 * time.Minute

// fetch sends size bytes from one end to the other and returns the longest pause; third is called
// after a third of them.
func (t *tunnel) fetch(tb testing.TB, from, size int, third func()) time.Duration {
	tb.Helper()
	ln, err := t.ends[from].Listen("tcp", addr("99", from)+":0")
	if err != nil {
		tb.Fatal(err)
	}
	defer ln.Close()
	want, served := sha256.New(), make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			c.SetDeadline(time.Now().Add(testTimeout))
			_, err = io.CopyN(io.MultiWriter(c, want), rand.NewChaCha8([32]byte{9}), int64(size))
			c.Close()
		}
		served <- err
	}()
	ctx, cancel := context.WithTimeout(tb.Context(), testTimeout)
	defer cancel()
	c, err := t.ends[1-from].DialContext(ctx, "tcp", ln.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout))
	got, buf, n, gap, last := sha256.New(), make([]byte, 64<<10), 0, time.Duration(0), time.Now()
	for {
		k, err := c.Read(buf)
		gap, last = max(gap, time.Since(last)), time.Now()
		got.Write(buf[:k])
		if n += k; third != nil && n > size/3 {
			// what is under way fills the receiver's buffer meanwhile, far less than what is left
			third()
			third, last = nil, time.Now()
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			tb.Fatalf("after %d of %d bytes: %v", n, size, err)
		}
	}
	if err := <-served; err != nil {
		tb.Fatal(err)
	}
	if n != size || string(got.Sum(nil)) != string(want.Sum(nil)) {
		tb.Fatalf("%d bytes of %d came, or other ones", n, size)
	}
	return gap
}

// TestRust connects to BoringTun, a WireGuard in Rust, if the machine has it (cargo install
// boringtun-cli).
func TestRust(t *testing.T) {
	if _, err := exec.LookPath(boringtun); err != nil {
		t.Skipf("SKIPPED: no %s here", boringtun)
	}
	for _, kinds := range [][2]string{{weir, boringtun}, {boringtun, weir}} {
		t.Run(kinds[0]+" calls "+kinds[1], func(t *testing.T) {
			tn := open(t, kinds[0], kinds[1], "98")
			tn.fetch(t, 0, 10<<20, nil)
			tn.fetch(t, 1, 10<<20, nil)
		})
	}
}

// TestInterop: each other implementation with ours, at either end, in both directions.
func TestInterop(t *testing.T) {
	for _, other := range others {
		for _, kinds := range [][2]string{{weir, other}, {other, weir}, {filtered, other}} {
			t.Run(kinds[0]+" calls "+kinds[1], func(t *testing.T) {
				tn := open(t, kinds[0], kinds[1], "98")
				tn.fetch(t, 0, 20<<20, nil)
				tn.fetch(t, 1, 20<<20, nil)
			})
		}
	}
}

// TestRekeysWithOthers: with timers a hundred times shorter at both ends, sessions end and begin by
// themselves all the time. No packet of a ping meanwhile is lost, whichever end renews, and
// downloads are complete. Old sessions are rejected late, or a machine that stalls would make one
// too old.
func TestRekeysWithOthers(t *testing.T) {
	nstest.RequireRoot(t)
	short := map[string]string{
		"RekeyAfterTime": "1500 * time.Millisecond", "RejectAfterTime": "120 * time.Second",
		"RekeyTimeout": "500 * time.Millisecond", "KeepaliveTimeout": "1000 * time.Millisecond",
	}
	if rebuilt.With(t, rebuilt.File{Module: "github.com/weirnet/weir",
		Path: "overlay/internal/device/constants.go", Constants: short},
		rebuilt.File{Module: "github.com/tailscale/wireguard-go", Path: "device/constants.go",
			Constants: short},
		rebuilt.File{Module: "golang.zx2c4.com/wireguard", Path: "device/constants.go",
			Constants: short}) {
		return
	}
	for _, other := range others {
		for _, kinds := range [][2]string{{weir, other}, {other, weir}} {
			t.Run(kinds[0]+" calls "+kinds[1], func(t *testing.T) {
				tn := open(t, kinds[0], kinds[1], "98")
				out, err := tn.ends[0].Command("ping", "-c", "600", "-i", "0.01", "-W", "300",
					addr("99", 1)).CombinedOutput()
				if err != nil || !strings.Contains(string(out), " 600 received, 0% packet loss") ||
					strings.Contains(string(out), "DUP") {
					t.Errorf("%v: %s", err, out)
				}
				tn.fetch(t, 0, 20<<20, nil)
				tn.fetch(t, 1, 20<<20, nil)
			})
		}
	}
}

// TestOtherRestarts: the other end dies in the middle of a session and comes back without state.
func TestOtherRestarts(t *testing.T) {
	for _, other := range others {
		t.Run(other, func(t *testing.T) {
			tn := open(t, weir, other, "98")
			tn.fetch(t, 0, 1<<20, nil)
			tn.procs[1].Process.Kill()
			tn.procs[1].Wait()
			if err := tn.startNode(1, []string{"98"}); err != nil {
				t.Fatal(err)
			}
			// The new one begins the handshake.
			if out, err := tn.ends[1].Command("ping", "-c1", "-W300",
				addr("99", 0)).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			tn.fetch(t, 1, 5<<20, nil)
		})
	}
}

// TestOtherFollows: the path of a download from, and to, another implementation dies. We have a
// second one; the other end needs nothing but WireGuard's roaming.
func TestOtherFollows(t *testing.T) {
	// Tailscale's fork leaves roaming to its Bind, and the one that comes with it has none.
	for from := range 2 {
		t.Run(fmt.Sprintf("from %s", []string{weir, upstream}[from]), func(t *testing.T) {
			tn := open(t, weir, upstream, "98", "97")
			tn.fetch(t, from, 1<<20, nil)
			gap := tn.fetch(t, from, 60<<20, func() {
				for _, n := range tn.ends { // what comes in is lost, without an ICMP error
					if out, err := n.Command("nft",
						"add table ip cut; add chain ip cut in { type filter hook prerouting "+
							"priority 0; }; "+
							"add rule ip cut in iifname wire98 drop").CombinedOutput(); err != nil {
						t.Fatalf("nft: %v: %s", err, out)
					}
				}
			})
			t.Logf("longest pause: %v", gap)
		})
	}
}
