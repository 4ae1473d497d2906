package overlay

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// refuseUDP refuses UDP, with an answer.
type refuseUDP struct{}

func (refuseUDP) EvaluateBatch(_ *firewall.Input, packets [][]byte, out []firewall.Verdict) {
	var p packet.Packet
	for i, b := range packets {
		p.Decode(b)
		out[i] = firewall.Verdict{Pass: p.Proto != packet.ProtoUDP,
			Answer: firewall.AnswerUnreach, Code: 3}
	}
}

// TestQuotesNothingOfOthers: the answer to datagrams that were coalesced has nothing of the packets
// of other peers that lie behind them, of the same batch and of the one before. One that came alone
// is quoted whole.
func TestQuotesNothingOfOthers(t *testing.T) {
	mark := []byte("mark")
	for _, v6 := range []bool{false, true} {
		var answers [][]byte
		var whole []bool
		w := newTunWriter(&tunDevice{filter: FilterBy(refuseUDP{}, func() time.Duration {
			return 0
		}, func(_ firewall.Hook, v firewall.Verdict, b, quote []byte) {
			var p packet.Packet
			p.Decode(b)
			answer, ok := build.Unreachable(&p, quote, v.Code, netip.Addr{})
			if !ok {
				t.Errorf("v6 %v: no answer", v6)
			}
			answers, whole = append(answers, answer), append(whole, len(quote) == len(b))
		})})
		write := func(lists ...[][]byte) {
			for _, list := range lists {
				w.addAll(list)
			}
			w.decideUnits()
			w.reset()
		}
		var marked [][]byte
		for flow := range byte(openFlows - 1) {
			p, o := gsoPacket(v6, 12, 2000, 1, tcpAck)
			p[int(o.CsumStart)+1] += flow
			copy(p[o.CsumStart+8:], mark) // the acknowledgement
			marked = append(marked, cutAll(t, p, o)...)
		}
		p, o := gsoDatagram(v6, 2000)
		datagrams := cutAll(t, p, o)
		write(marked)
		if !bytes.Contains(w.slab, mark) {
			t.Fatal("no header is there, so the test shows nothing")
		}
		write(datagrams)
		write(datagrams, marked)
		write(datagrams[:1])
		if len(answers) != 3 || whole[0] || whole[1] || !whole[2] {
			t.Fatalf("v6 %v: %d answers, whole: %v", v6, len(answers), whole)
		}
		for i, answer := range answers {
			if bytes.Contains(answer, mark) {
				t.Errorf("v6 %v: answer %d has bytes of others: % x", v6, i, answer)
			}
			var q, first packet.Packet
			q.Decode(answer)
			first.Decode(datagrams[0])
			if inner, ok := q.Inner(answer); !ok || inner.Ports != first.Ports {
				t.Errorf("v6 %v: answer %d quotes %v", v6, i, inner.String())
			}
		}
	}
}
