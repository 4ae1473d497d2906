package flow

import (
	"bufio"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/packet"
)

// TestRecordedConnections plays connections of a real TCP stack: every segment must count, and each
// connection must end closed.
func TestRecordedConnections(t *testing.T) {
	f, err := os.Open("testdata/http.hex")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type conn struct {
		State
		first  End
		phases []string
	}
	conns := map[Key]*conn{}
	lines := bufio.NewScanner(f)
	for now := time.Duration(1); lines.Scan(); now++ {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		b, err := hex.DecodeString(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, make([]byte, 30000)...) // the file does not contain the payload
		var p packet.Packet
		if r := p.Decode(b); r != packet.ReasonNone {
			t.Fatalf("packet %d: %v", now, r)
		}
		k, d, ok := KeyOf(&p, b, 0)
		if !ok {
			t.Fatalf("packet %d has no key", now)
		}
		seg := SegmentOf(&p, b)
		c := conns[k]
		if c == nil {
			s, ok := New(p.Proto, &seg, now)
			if !ok || s.Loose {
				t.Fatalf("packet %d: made %v, %+v", now, ok, s)
			}
			c = &conn{State: s, first: d}
			conns[k] = c
		} else if r := c.Step(&seg, d.Dir(c.first), now, ModeStrict); r != ResultHit {
			t.Fatalf("packet %d: %v, state %+v", now, r, c.State)
		}
		if n := len(c.phases); n == 0 || c.phases[n-1] != c.Phase().String() {
			c.phases = append(c.phases, c.Phase().String())
		}
	}
	if len(conns) != 2 {
		t.Fatalf("%d connections, want 2", len(conns))
	}
	for k, c := range conns {
		if got := strings.Join(c.phases, " "); got != "opening established closing closed" {
			t.Errorf("%v: %s", k.Low(), got)
		}
		if c.Sides[0].Packets+c.Sides[1].Packets != 12 || c.Sides[1].Bytes < 20000 {
			t.Errorf("%v: counters %+v", k.Low(), c.Sides)
		}
	}
}
