package overlay

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/rebuilt"
)

// hurry runs this test in a build whose WireGuard does in a second or two what it does in minutes
// else: its timers are constants. It returns false there.
func hurry(t *testing.T) bool {
	t.Helper()
	nstest.RequireRoot(t)
	return rebuilt.With(t, rebuilt.File{Module: "github.com/weirnet/weir",
		Path: "overlay/internal/device/constants.go", Constants: map[string]string{
			"RekeyAfterTime":   "1500 * time.Millisecond",
			"RejectAfterTime":  "4000 * time.Millisecond",
			"RekeyTimeout":     "500 * time.Millisecond",
			"KeepaliveTimeout": "1000 * time.Millisecond",
		}})
}

// TestRekeys: sessions end and new ones begin by themselves, while numbered datagrams go both ways
// without a pause. Each must arrive once.
func TestRekeys(t *testing.T) {
	t.Parallel()
	if hurry(t) {
		return
	}
	a, b := pair(t, nil, nil)
	echo(t, a, b, 100)
	// So many datagrams may be under way: a tun device holds 500, and a goroutine may be late.
	const count, gap, ahead = 8000, time.Millisecond, 200
	type result struct {
		lost, twice int
		worst       time.Duration // between two that came
		err         error
	}
	results := make(chan result)
	for _, way := range [][2]*side{{a, b}, {b, a}} {
		ln, err := way[1].ListenPacket("udp", way[1].addr+":4000")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if err := ln.(*net.UDPConn).SetReadBuffer(4 << 20); err != nil {
			t.Fatal(err)
		}
		c, err := way[0].DialContext(t.Context(), "udp", way[1].addr+":4000")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		under := make(chan struct{}, ahead)
		go func() {
			for i := range uint32(count) {
				under <- struct{}{} // for ever, if too many were lost
				c.Write(binary.BigEndian.AppendUint32(make([]byte, 0, 4), i))
				time.Sleep(gap)
			}
		}()
		go func() {
			var r result
			var seen [count]bool
			buf, came, last := make([]byte, 10), 0, time.Now()
			for came < count {
				ln.SetReadDeadline(time.Now().Add(time.Minute))
				n, _, err := ln.ReadFrom(buf)
				if err != nil || n != 4 {
					r.err = err
					break
				}
				select {
				case <-under:
				default: // it came twice
				}
				if i := binary.BigEndian.Uint32(buf); seen[i] {
					r.twice++
				} else {
					seen[i] = true
					came++
				}
				r.worst, last = max(r.worst, time.Since(last)), time.Now()
			}
			r.lost = count - came
			results <- r
		}()
	}
	for range 2 {
		if r := <-results; r.lost+r.twice > 0 {
			t.Errorf("lost %d, twice %d: %v", r.lost, r.twice, r.err)
		} else {
			t.Logf("longest pause %v", r.worst)
		}
	}
	if n := a.dev.Stats().Answered + b.dev.Stats().Answered; n < 5 {
		t.Errorf("only %d sessions were made", n)
	} else {
		t.Logf("%d sessions", n)
	}
}

// TestSessionEnds: an unused session ends after a while, and the next packet makes
// another one.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	if hurry(t) {
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
