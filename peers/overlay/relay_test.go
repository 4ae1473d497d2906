package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// relay forwards between two ends of a tunnel like a bad router. It loses, repeats and delays
// datagrams, and may change the port that the second end sees of the first.
//
//	node a --- inner  relay  outer --- node b
type relay struct {
	node *nstest.Node
	rnd  *rand.Rand

	mu           sync.Mutex
	inner, outer net.PacketConn
	lost, twice  int
	late         int
}

// openRelay starts a relay on the node of the first end.
func openRelay(t *testing.T, n *nstest.Node) *relay {
	t.Helper()
	r := &relay{node: n, rnd: rand.New(rand.NewPCG(1, 2))}
	var err error
	if r.inner, err = n.ListenPacket("udp", addr("98", 0)+":40000"); err != nil {
		t.Fatal(err)
	}
	r.move(t)
	go r.serve(r.inner, func() (net.PacketConn, string) {
		return r.outer, fmt.Sprintf("%s:%d", addr("98", 1), port)
	})
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.inner.Close()
		r.outer.Close()
	})
	return r
}

// move gives the relay another port towards the second end.
func (r *relay) move(t *testing.T) {
	t.Helper()
	outer, err := r.node.ListenPacket("udp", addr("98", 0)+":0")
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outer != nil {
		r.outer.Close()
	}
	r.outer = outer
	go r.serve(outer, func() (net.PacketConn, string) {
		return r.inner, fmt.Sprintf("%s:%d", addr("98", 0), port)
	})
}

// serve forwards what comes to in, until that is closed.
func (r *relay) serve(in net.PacketConn, out func() (net.PacketConn, string)) {
	buf := make([]byte, 65535)
	for {
		n, _, err := in.ReadFrom(buf)
		if err != nil {
			return
		}
		r.mu.Lock()
		conn, name := out()
		to, err := net.ResolveUDPAddr("udp", name)
		drawn := r.rnd.IntN(1000)
		b := bytes.Clone(buf[:n])
		switch {
		case err != nil:
		case drawn < 5:
			r.lost++
		case drawn < 25:
			r.twice++
			conn.WriteTo(b, to)
			conn.WriteTo(b, to)
		case drawn < 55:
			r.late++
			time.AfterFunc(2*time.Millisecond, func() { conn.WriteTo(b, to) })
		default:
			conn.WriteTo(b, to)
		}
		r.mu.Unlock()
	}
}

// TestOthersOnABadWire: another implementation is at either end, and the wire loses, repeats and
// reorders datagrams. Downloads over it are whole, no ping comes twice, and when the wire's near
// end moves the far one follows.
func TestOthersOnABadWire(t *testing.T) {
	others := []string{upstream}
	if _, err := exec.LookPath(boringtun); err == nil {
		others = append(others, boringtun)
	}
	// Not Tailscale's fork, whose Bind never follows.
	for _, other := range others {
		for _, kinds := range [][2]string{{weir, other}, {other, weir}} {
			t.Run(kinds[0]+" calls "+kinds[1], func(t *testing.T) {
				tn := &tunnel{kind: kinds[0], kinds: kinds, via: addr("98", 0) + ":40000"}
				if err := tn.wire(nstest.New(t), []string{"98"}, true); err != nil {
					t.Fatal(err)
				}
				r := openRelay(t, tn.ends[0])
				if err := tn.start([]string{"98"}); err != nil {
					t.Fatal(err)
				}
				for from := range 2 {
					tn.fetch(t, from, 4<<20, nil)
				}
				// the first end sends: the second hears it from elsewhere
				tn.fetch(t, 0, 4<<20, func() { r.move(t) })
				out, err := tn.ends[0].Command("ping", "-c", "300", "-i", "0.01", "-W", "2",
					addr("99", 1)).CombinedOutput()
				if err != nil || strings.Contains(string(out), "DUP") {
					t.Errorf("%v: %s", err, out)
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				t.Logf("%d lost, %d twice, %d late", r.lost, r.twice, r.late)
				if r.lost == 0 || r.twice == 0 || r.late == 0 {
					t.Errorf("the wire was not bad: %d lost, %d twice, %d late", r.lost, r.twice,
						r.late)
				}
			})
		}
	}
}
