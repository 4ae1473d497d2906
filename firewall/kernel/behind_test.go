package kernel

import (
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// copyLab has a connection whose state is the first copy of one in another table, which sees
// packets that this one does not.
type copyLab struct {
	*bench
	t    *testing.T
	peer int // the side that began the connection
	copy weirCall
}

const copiedPort = 7

func newCopyLab(t *testing.T) *copyLab {
	b := newBench(t, "add check-state\nadd allow tcp from any to me 80 setup keep-state\n"+
		"add deny ip from any to any\n", func(*firewall.Options) {})
	if !b.connect(outsider(1), copiedPort) {
		t.Fatal("the connection does not open")
	}
	l := &copyLab{bench: b, t: t}
	x := l.only()
	l.copy = x.call(uint8(x.tag>>16), 0)
	if l.copy.Side[1].Flags&metaMade != 0 {
		l.peer = 1
	}
	b.e.mu.Lock()
	err := b.e.endWhere(func(*entry) bool { return true })
	b.e.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	first := l.copy
	for i := range first.Side {
		first.Side[i].Flags |= metaLiberal | metaBehind
	}
	if first.Count = adoptMerge; b.e.call.ask(&first) != nil || first.Result != adoptMade {
		t.Fatalf("result %d", first.Result)
	}
	return l
}

func (l *copyLab) only() *entry {
	l.t.Helper()
	var last *entry
	for x, err := range l.e.entries() {
		if err != nil || last != nil {
			l.t.Fatalf("more than one state, or %v", err)
		}
		last = x
	}
	if last == nil {
		l.t.Fatal("no state")
	}
	return last
}

// passes sends a segment, which a copy never refuses.
func (l *copyLab) passes(what string, in bool, flags uint8, seq, ack uint32) {
	l.t.Helper()
	if v := l.segment(in, outsider(1), copiedPort, flags, seq, ack, 0); !v.Pass {
		l.t.Errorf("%s: %+v", what, v)
	}
}

// last merges what the other table has in the end: the peer's FIN, too.
func (l *copyLab) last() {
	l.t.Helper()
	c := l.copy
	d := &c.Side[l.peer]
	d.End, d.Bytes, d.Packets = d.End+1, d.Bytes+40, d.Packets+1
	d.Flags |= uint32(flow.SideFin)
	c.Count = adoptMerge | adoptStale | adoptResync
	if err := l.e.call.ask(&c); err != nil {
		l.t.Fatal(err)
	}
}

const finAck = packet.FlagFIN | packet.FlagACK

// TestConnectionEndsWhileItIsCopied: the other table alone has seen the FIN of one end. That of the
// other end does not fit the copy, and is recorded all the same, and so is the last
// acknowledgement: the next connection with these ports opens.
func TestConnectionEndsWhileItIsCopied(t *testing.T) {
	t.Parallel()
	l := newCopyLab(t)
	l.passes("the server's FIN", false, finAck, 901, 102)
	l.passes("the last acknowledgement", true, packet.FlagACK, 102, 902)
	l.last()
	if x := l.only(); l.phases()[flow.PhaseClosed] != 1 || x.sides[0].Flags&metaLoose != 0 {
		t.Errorf("%v, flags %#x and %#x", l.phases(), x.sides[0].Flags, x.sides[1].Flags)
	}
	if !l.connect(outsider(1), copiedPort) {
		t.Error("the next connection does not open")
	}
}

// TestConnectionIsResetWhileItIsCopied: an RST behind data that the other table alone has seen is
// recorded if it acknowledges what was sent.
func TestConnectionIsResetWhileItIsCopied(t *testing.T) {
	t.Parallel()
	l := newCopyLab(t)
	l.passes("the server's RST", false, packet.FlagRST|packet.FlagACK, 1001, 102)
	l.last()
	if l.phases()[flow.PhaseReset] != 1 {
		t.Errorf("%v", l.phases())
	}
}

// TestBlindSegmentsEndNoCopy: a copy records only what fits both of its numbers nearly.
func TestBlindSegmentsEndNoCopy(t *testing.T) {
	t.Parallel()
	l := newCopyLab(t)
	for _, s := range []struct {
		what     string
		flags    uint8
		seq, ack uint32
	}{
		{"a FIN far from the sequence number", finAck, 901 + 70000, 102},
		{"a FIN far from the acknowledgement", finAck, 901, 70102},
		{"an RST far from the acknowledgement", packet.FlagRST | packet.FlagACK, 902, 1 << 31},
		{"an RST beside the sequence number", packet.FlagRST, 902, 0},
		{"an acknowledgement from nowhere", packet.FlagACK, 77777777, 88888888},
	} {
		before := l.only()
		l.passes(s.what, false, s.flags, s.seq, s.ack)
		after := l.only()
		for i := range after.sides {
			a, b := &before.sides[i], &after.sides[i]
			if a.Flags != b.Flags || a.End != b.End || a.Ack != b.Ack || a.Edge != b.Edge {
				t.Errorf("%s: %+v became %+v", s.what, a, b)
			}
		}
	}
	l.passes("the acknowledgement", true, packet.FlagACK, 101, 901)
}
