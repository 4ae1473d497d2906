package flow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/packet"
)

// play runs a script of TCP segments. A line is
//
//	side flags seq ack len window [wsN] = result
//
// with flags from SARFP (or "." for none), and len the payload. "a SA ..." before the state exists
// makes it. The state is returned.
func play(t *testing.T, liberal bool, script string) State {
	t.Helper()
	var s State
	made := false
	now := time.Duration(0)
	for line := range strings.SplitSeq(strings.TrimSpace(script), "\n") {
		line = strings.TrimSpace(line)
		var side, flags, option, want string
		seg := Segment{Scale: NoScale, Bytes: 40}
		left, want, _ := strings.Cut(line, " = ")
		if _, err := fmt.Sscan(left, &side, &flags, &seg.Seq, &seg.Ack, &seg.Len,
			&seg.Window); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if fields := strings.Fields(left); len(fields) > 6 {
			option = fields[6]
			if _, err := fmt.Sscanf(option, "ws%d", &seg.Scale); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		for _, c := range flags {
			switch c {
			case 'S':
				seg.Flags |= flagSYN
				seg.Len++
			case 'F':
				seg.Flags |= flagFIN
				seg.Len++
			case 'R':
				seg.Flags |= flagRST
			case 'A':
				seg.Flags |= flagACK
			case 'P':
				seg.Flags |= packet.FlagPSH
			}
		}
		now++
		if !made {
			var ok bool
			if s, ok = New(packet.ProtoTCP, &seg, now); !ok != (want == "refused") {
				t.Fatalf("%q: made %v", line, ok)
			}
			made = true
			continue
		}
		from := int(side[0] - 'a')
		before := s
		got := s.Step(&seg, Dir(from), now, modeOf(liberal))
		if got.String() != want {
			t.Fatalf("%q: got %v\nstate before: %+v", line, got, before)
		}
		if got == ResultHit && (s.Sides[from].Last != now ||
			s.Sides[from].Packets != before.Sides[from].Packets+1 ||
			s.Sides[from].Bytes != before.Sides[from].Bytes+40) {
			t.Fatalf("%q: a hit does not count: %+v", line, s)
		}
		if got != ResultHit && s != before {
			t.Fatalf("%q: %v changed the state\nfrom %+v\nto   %+v", line, got, before, s)
		}
		if s.Sides[1-from] != before.Sides[1-from] {
			t.Fatalf("%q: the other side changed", line)
		}
	}
	return s
}

// open is a handshake with scales 7 and 8: A has 1000.., B has 5000...
const open = `
	a S 1000 0 0 64240 ws7
	b SA 5000 1001 0 65160 ws8 = hit
	a A 1001 5001 0 502 = hit
`

// tcpCases are what TestTCP plays, by the steps in section 8 of the evaluation.
var tcpCases = []struct {
	name, script string
	liberal      bool
	phase        Phase
}{
	{name: "a SYN opens", script: "a S 1 0 0 100", phase: PhaseOpening},
	{name: "handshake", script: open, phase: PhaseEstablished},
	{name: "SYN+ACK alone is not established",
		script: "a S 1000 0 0 9\n b SA 5000 1001 0 9 = hit", phase: PhaseOpening},
	{name: "fast open",
		script: "a S 1000 0 100 9\n b SA 5000 1101 0 9 = hit\n a A 1101 5001 0 9 = hit",
		phase:  PhaseEstablished},
	{name: "fast open refused",
		script: "a S 1000 0 100 9\n b SA 5000 1001 0 900 = hit\n a A 1001 5001 100 9 = hit",
		phase:  PhaseEstablished},

	{name: "1: null", script: open + "a . 1001 0 0 502 = bad-flags", phase: PhaseEstablished},
	{name: "1: fin only", script: open + "a F 1001 5001 0 502 = bad-flags",
		phase: PhaseEstablished},
	{name: "1: SYN+FIN", script: open + "a SF 1001 5001 0 502 = bad-flags",
		phase: PhaseEstablished},
	{name: "1: SYN+RST", script: open + "a SR 1001 5001 0 502 = bad-flags",
		phase: PhaseEstablished},
	{name: "1: before anything else", script: open +
		"a R 1001 0 0 0 = hit\n a SF 1 1 0 0 = bad-flags", phase: PhaseReset},

	{name: "2: closed by RST, SYN recycles", script: open +
		"a R 1001 0 0 0 = hit\n a S 9 0 0 1 = recycle\n b S 9 0 0 1 = recycle",
		phase: PhaseReset},
	{name: "2: closed by RST, the rest passes", script: open +
		"a R 1001 0 0 0 = hit\n a A 77 88 9 1 = untouched\n b R 9 0 0 1 = untouched\n" +
		" b SA 9 9 0 1 = untouched", phase: PhaseReset},
	{name: "2: closed by FINs", script: open + `a FA 1001 5001 0 502 = hit
		b FA 5001 1002 0 500 = hit
		a A 1002 5002 0 502 = hit
		a A 1002 5002 0 502 = untouched
		b S 9 0 0 1 = recycle`, phase: PhaseClosed},

	{name: "3: SYN again", script: "a S 1000 0 0 9\n a S 1000 0 0 9 = hit",
		phase: PhaseOpening},
	{name: "3: another SYN", script: "a S 1000 0 0 9\n a S 2000 0 0 9 = recycle",
		phase: PhaseOpening},
	{name: "3: simultaneous open", script: `a S 1000 0 0 9000 ws3
		b S 5000 0 0 9000 ws3 = hit
		a SA 1000 5001 0 9000 ws3 = hit
		b SA 5000 1001 0 9000 ws3 = hit
		a A 1001 5001 10 9000 = hit
		b A 5001 1011 10 9000 = hit`, phase: PhaseEstablished},
	{name: "3: SYN for a live connection", script: open +
		"a S 1000 0 0 9 = untouched\n a S 777 0 0 9 = untouched\n b S 1 0 0 9 = untouched",
		phase: PhaseEstablished},
	{name: "3: SYN after SYN+ACK",
		script: "a S 1000 0 0 9\n b SA 5000 1001 0 9 = hit\n a S 1000 0 0 9 = untouched",
		phase:  PhaseOpening},

	{name: "4: refused connection", script: "a S 1000 0 0 9\n b RA 0 1001 0 0 = hit",
		phase: PhaseReset},
	{name: "4: blind RST",
		script: "a S 1000 0 0 9\n b RA 0 1002 0 0 = bad-rst\n b R 1001 1001 0 0 = bad-rst",
		phase:  PhaseOpening},
	{name: "4: SYN+ACK for another SYN",
		script: "a S 1000 0 0 9\n b SA 5000 1000 0 9 = bad-ack\n b SA 5000 1002 0 9 = bad-ack",
		phase:  PhaseOpening},
	{name: "4: half-open connection",
		script: "a S 1000 0 0 9\n b A 5000 777 0 9 = untouched\n a R 777 0 0 0 = untouched",
		phase:  PhaseOpening},
	{name: "6: the initiator gives up", script: "a S 1000 0 0 9\n a R 1001 0 0 0 = hit",
		phase: PhaseReset},

	{name: "4: loose from the middle", script: "a A 1000 5000 100 9\n b A 5000 1100 10 9 = hit",
		phase: PhaseOpening},
	{name: "4: strict when both numbers are known", script: `a A 1000 5000 100 9
		b A 5000 1100 10 9 = hit
		a A 2147484747 5010 10 9 = bad-window
		a A 1100 5011 10 9 = bad-ack
		a A 1100 5010 10 9 = hit`, phase: PhaseEstablished},
	{name: "4: windows of an unknown scale are large", script: `a A 1000 5000 100 65535
		b A 5000 1100 0 65535 = hit
		a A 1100 5000 0 65535 = hit
		b A 900000000 1100 0 65535 = hit`, phase: PhaseEstablished},
	{name: "4: loose from SYN+ACK",
		script: "a SA 1000 5000 0 9\n b A 5000 1001 0 9 = hit\n a A 1001 5000 0 9 = hit",
		phase:  PhaseEstablished},
	{name: "4: a blind RST ends nothing", script: `a A 1000 5000 100 9
		b R 4999 0 0 0 = untouched
		a R 1099 0 0 0 = untouched
		b A 5000 1100 10 9 = hit
		b R 4000 0 0 0 = bad-rst
		b R 5011 0 0 0 = untouched
		a S 7 0 0 9 = untouched
		a A 1100 5010 10 9 = hit`, phase: PhaseEstablished},
	{name: "4: an exact RST", script: "a A 1000 5000 100 9\n b R 5000 0 0 0 = hit",
		phase: PhaseReset},
	{name: "4: an RST after a blind segment that fits it",
		script: "a A 1000 5000 100 9\n a A 77777 2 100 9 = hit\n a R 77877 0 0 0 = untouched",
		phase:  PhaseOpening},
	{name: "4: a segment out of order does not take the numbers back", script: `a A 1000 5000 100 9
		a A 900 4990 100 9 = hit
		b A 5000 1100 10 9 = hit
		a A 1100 5010 0 9 = hit
		b A 5010 1100 10 9 = hit`, phase: PhaseEstablished},
	{name: "4: more was sent than was seen", script: `a A 1000 5000 100 9
		b A 5000 1300 10 9 = untouched
		b A 4000 1100 10 9 = untouched
		a A 1100 5000 200 9 = hit
		b A 5000 1300 10 9 = hit
		a A 1300 5010 0 9 = hit`, phase: PhaseEstablished},
	{name: "4: blind numbers are corrected", script: `a A 99 77 0 9
		a A 1000 5000 100 9 = hit
		b A 99999999 2 0 9 = untouched
		b A 5000 1100 10 9 = hit
		a A 1100 5010 10 9 = hit`, phase: PhaseEstablished},
	{name: "4: a blind SYN and a blind FIN tell nothing", script: `a A 1000 5000 100 9
		b S 1 0 0 9 = untouched
		a FA 3000 1 0 9 = hit
		a A 1000 5000 100 9 = hit
		b FA 5000 1100 10 9 = hit
		a A 1100 5011 10 9 = hit`, phase: PhaseEstablished},
	{name: "4: loose RST and FIN",
		script: "a A 1 1 1 9\n b A 1 2 0 9 = hit\n a FA 2 1 0 9 = hit\n b RA 1 1 0 0 = hit",
		phase:  PhaseReset},
	{name: "4: loose end",
		script: "a A 1 1 1 9\n b FA 1 2 0 9 = hit\n a FA 2 2 0 9 = hit\n b A 2 3 0 9 = hit",
		phase:  PhaseClosed},
	{name: "4: loose first RST of a side", script: "a A 1 1 1 9\n b R 1 1 0 0 = hit",
		phase: PhaseReset},

	{name: "6: exact RST from either end", script: open + "b R 5001 0 0 0 = hit",
		phase: PhaseReset},
	{name: "6: RST at what the peer acknowledged", script: open +
		"b A 5001 1001 1000 500 = hit\n b R 5001 0 0 0 = hit", phase: PhaseReset},
	{name: "6: RST in the window", script: open +
		"b R 5002 0 0 0 = untouched\n b R 69257 0 0 0 = untouched", phase: PhaseEstablished},
	{name: "6: blind RST", script: open +
		"b R 5000 0 0 0 = bad-rst\n b R 69258 0 0 0 = bad-rst\n b RA 1 1001 0 0 = bad-rst",
		phase: PhaseEstablished},

	{name: "7: another SYN and ACK before the first was acknowledged", script: `a S 1000 0 0 10 ws7
		b SA 5000 1001 0 9 ws3 = hit
		b SA 9000 1001 0 9 = hit
		a A 1001 4294901761 0 10 = bad-ack
		a A 1001 9001 0 10 = hit
		b A 9001 1001 10 9 = hit`, phase: PhaseEstablished},
	{name: "7: another SYN and ACK later", script: open + "b SA 99999999 1001 0 9 = bad-window",
		phase: PhaseEstablished},
	{name: "7: another SYN and ACK of another SYN",
		script: "a S 1000 0 0 10\n b SA 5000 1001 0 9 = hit\n" +
			" b SA 90000000 1002 0 9 = bad-window", phase: PhaseOpening},
	{name: "7: no ACK",
		script: "a S 1000 0 0 9\n b SA 5000 1001 0 9 = hit\n a P 1001 0 1 9 = bad-flags",
		phase:  PhaseOpening},
	{name: "7: ACK before the peer spoke", script: "a S 1000 0 0 9\n a A 1001 1 0 9 = bad-ack",
		phase: PhaseOpening},
	// 5001+502<<7
	{name: "7: upper edge", script: open + "b A 69257 1001 0 500 = hit",
		phase: PhaseEstablished},
	{name: "7: above the edge", script: open + "b A 69258 1001 0 500 = bad-window",
		phase: PhaseEstablished},
	{name: "7: window probe", script: open + "b A 69257 1001 1 500 = hit",
		phase: PhaseEstablished},
	{name: "7: data over the edge", script: open + "b A 69257 1001 2 500 = bad-window",
		phase: PhaseEstablished},
	{name: "7: edge of a peer that has not acknowledged",
		script: "a S 1000 0 0 10\n b SA 5000 1001 0 9 = hit\n b A 5001 1001 10 9 = hit\n" +
			" b A 5011 1001 2 9 = bad-window", phase: PhaseOpening},
	{name: "7: old data", script: open +
		"a A 935002 5001 0 502 = bad-window\n a A 4294901297 5001 0 502 = bad-window",
		phase: PhaseEstablished},
	{name: "7: lowest old data",
		script: "a S 100000 0 0 10\n b SA 5000 100001 0 9 = hit\n a A 34001 5001 0 9 = hit\n" +
			" a A 34000 5001 0 9 = bad-window", phase: PhaseEstablished},
	{name: "7: ACK of unsent data", script: open + "a A 1001 5002 0 502 = bad-ack",
		phase: PhaseEstablished},
	{name: "7: ACK long past",
		script: "a S 1000 0 0 10\n b SA 100000 1001 0 9 = hit\n a A 1001 34000 0 9 = bad-ack\n" +
			" a A 1001 34001 0 9 = hit", phase: PhaseOpening},
	{name: "7: keepalive probe", script: open +
		"a A 1000 5001 0 502 = hit\n b A 5001 1001 0 500 = hit\n a A 1000 5001 1 502 = hit",
		phase: PhaseEstablished},
	{name: "8: a shrunken window does not count", script: open +
		"a A 1001 5001 0 0 = hit\n b A 5001 1001 1000 500 = hit", phase: PhaseEstablished},
	{name: "8: half close", script: open +
		"a FA 1001 5001 0 502 = hit\n b A 5001 1002 1000 500 = hit\n a A 1002 6001 0 502 = hit",
		phase: PhaseEstablished},
	{name: "8: both FINs, one not acknowledged", script: open +
		"a FA 1001 5001 0 502 = hit\n b FA 5001 1002 0 500 = hit", phase: PhaseClosing},
	{name: "8: simultaneous close", script: open + `a FA 1001 5001 0 502 = hit
		b FA 5001 1001 0 500 = hit
		a A 1002 5002 0 502 = hit
		b A 5002 1002 0 500 = hit`, phase: PhaseClosed},
	{name: "8: FIN again", script: open +
		"a FA 1001 5001 9 502 = hit\n a FA 1001 5001 9 502 = hit\n b A 5001 1011 0 500 = hit",
		phase: PhaseEstablished},

	{name: "liberal lets numbers pass", liberal: true, script: open + `b A 99999999 1001 0 500 = untouched
		a A 1001 99999999 0 500 = untouched
		b R 4000 0 0 0 = untouched
		b A 5001 1001 3 500 = hit
		a SF 1 1 0 0 = bad-flags`, phase: PhaseEstablished},
	{name: "liberal before the answer", liberal: true,
		script: "a S 1000 0 0 9\n b SA 5000 1002 0 9 = untouched\n b R 1 1 0 0 = untouched",
		phase:  PhaseOpening},
	{name: "scale only when both have it",
		script: "a S 1000 0 0 10 ws7\n b SA 5000 1001 0 10 = hit\n a A 1001 5001 0 10 = hit\n" +
			" b A 5012 1001 0 9 = bad-window\n b A 5011 1001 0 9 = hit",
		phase: PhaseEstablished},
	{name: "sequence numbers wrap", script: `a S 4294967295 0 0 1000
		b SA 4294967294 0 0 1000 = hit
		a A 0 4294967295 100 1000 = hit
		b A 4294967295 100 100 1000 = hit
		a A 100 99 0 1000 = hit
		b R 200 0 0 0 = untouched
		b R 99 0 0 0 = hit`, phase: PhaseReset},
}

func TestTCP(t *testing.T) {
	for _, c := range tcpCases {
		t.Run(c.name, func(t *testing.T) {
			s := play(t, c.liberal, c.script)
			if s.Phase() != c.phase {
				t.Errorf("phase %v, want %v\n%+v", s.Phase(), c.phase, s)
			}
		})
	}
}

func TestTCPRefusesImpossibleFirst(t *testing.T) {
	for _, flags := range []uint8{0, flagFIN, packet.FlagPSH, flagSYN | flagFIN, flagSYN | flagRST,
		0xff &^ flagACK, packet.FlagURG | flagFIN} {
		if s, ok := New(packet.ProtoTCP, &Segment{Flags: flags}, 1); ok {
			t.Errorf("flags %#x made %+v", flags, s)
		}
	}
}

// TestALongTransfer sends 5 GiB: the sequence numbers wrap around, and the connection stays
// established.
func TestALongTransfer(t *testing.T) {
	s := play(t, false, open)
	const piece = 32000
	seq := uint32(5001)
	for sent := 0; sent < 5<<30; sent += piece {
		if r := s.Step(&Segment{Flags: flagACK, Seq: seq, Ack: 1001, Len: piece, Window: 500,
			Bytes: piece + 40}, DirReply, 1, ModeStrict); r != ResultHit {
			t.Fatalf("data after %d bytes: %v", sent, r)
		}
		if r := s.ICMPError(seq, DirReply, 56, ModeStrict); r != ResultUntouched {
			t.Fatalf("an error about the newest segment after %d bytes: %v", sent, r)
		}
		seq += piece
		if r := s.Step(&Segment{Flags: flagACK, Seq: 1001, Ack: seq, Window: 502, Bytes: 40},
			DirOriginal, 1,
			ModeStrict); r != ResultHit {
			t.Fatalf("acknowledgement after %d bytes: %v", sent, r)
		}
		if p := s.Phase(); p != PhaseEstablished {
			t.Fatalf("after %d bytes the connection is %v", sent, p)
		}
	}
}
