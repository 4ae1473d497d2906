package overlay

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/rebuilt"
)

// hurry runs this test in a build whose WireGuard does in a second or two what it does in minutes
// else: its timers are constants. A session is rejected after some time there. It returns false in
// that build.
func hurry(t *testing.T, reject string) bool {
	t.Helper()
	nstest.RequireRoot(t)
	return rebuilt.With(t, rebuilt.File{Module: "github.com/weirnet/weir",
		Path: "overlay/internal/device/constants.go", Constants: map[string]string{
			"RekeyAfterTime":   "1500 * time.Millisecond",
			"RejectAfterTime":  reject,
			"RekeyTimeout":     "500 * time.Millisecond",
			"KeepaliveTimeout": "1000 * time.Millisecond",
		}})
}

// TestRekeys: sessions end and new ones begin by themselves, while numbered datagrams go both ways
// without a pause. Each must arrive once.
func TestRekeys(t *testing.T) {
	t.Parallel()
	if hurry(t, "120 * time.Second") { // or a machine that stalls would make a session too old
		return
	}
	a, b := pair(t, nil, nil)
	echo(t, a, b, 100)
	begin := time.Now()
	sessions := func() uint64 { return a.dev.Stats().Answered + b.dev.Stats().Answered }
	enough := func() bool { return sessions() >= 5 || time.Since(begin) > testTimeout }
	results := make(chan sequence)
	for _, way := range [][2]*side{{a, b}, {b, a}} {
		sendSequence(t, way[0], way[1], 8000, enough, results)
	}
	for range 2 {
		if r := <-results; r.lost+r.twice > 0 {
			t.Errorf("lost %d, twice %d: %v", r.lost, r.twice, r.err)
		} else {
			t.Logf("longest pause %v", r.worst)
		}
	}
	if n := sessions(); n < 5 {
		t.Errorf("only %d sessions were made", n)
	} else {
		t.Logf("%d sessions", n)
	}
}

// sequence is what became of numbered datagrams.
type sequence struct {
	lost, twice int
	worst       time.Duration // between two that came
	err         error
}

// sendSequence begins to send numbered datagrams, so many at least and until it is enough, and to
// receive them.
func sendSequence(t *testing.T, from, to *side, least uint32, enough func() bool,
	results chan<- sequence) {
	t.Helper()
	ln, err := to.ListenPacket("udp", to.addr+":4000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	if err := ln.(*net.UDPConn).SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	c, err := from.DialContext(t.Context(), "udp", to.addr+":4000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	// So many datagrams may be under way: a tun device holds 500, and a goroutine may be late.
	under := make(chan struct{}, 200)
	var sent atomic.Int64 // all of them, from the last one on
	go func() {
		for i := uint32(0); sent.Load() == 0; i++ {
			under <- struct{}{} // for ever, if too many were lost
			if i+1 >= least && enough() {
				sent.Store(int64(i) + 1)
			}
			c.Write(binary.BigEndian.AppendUint32(make([]byte, 0, 4), i))
			time.Sleep(time.Millisecond)
		}
	}()
	go func() {
		var r sequence
		seen := map[uint32]bool{}
		buf, last := make([]byte, 10), time.Now()
		for sent.Load() == 0 || len(seen) < int(sent.Load()) {
			ln.SetReadDeadline(time.Now().Add(time.Minute))
			n, _, err := ln.ReadFrom(buf)
			if err != nil || n != 4 {
				r.err = fmt.Errorf("%d bytes, %w", n, err)
				r.lost = max(1, int(sent.Load())-len(seen))
				break
			}
			select {
			case <-under:
			default: // it came twice
			}
			i := binary.BigEndian.Uint32(buf)
			if seen[i] {
				r.twice++
			}
			seen[i] = true
			r.worst, last = max(r.worst, time.Since(last)), time.Now()
		}
		results <- r
	}()
}

// TestSessionEnds: an unused session ends after a while, and the next packet makes
// another one.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	if hurry(t, "4 * time.Second") {
		return
	}
	a, b := pair(t, nil, nil)
	echo(t, a, b, 100)
	before := a.dev.Stats().Begun + b.dev.Stats().Begun
	time.Sleep(5 * time.Second)
	echo(t, b, a, 100)
	if after := a.dev.Stats().Begun + b.dev.Stats().Begun; after == before {
		t.Error("the old session is still in use")
	}
}
