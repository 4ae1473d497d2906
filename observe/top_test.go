package observe

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// TestTopAddsUp: however many pairs there are, nothing that was refused goes missing, and the big
// ones stay.
func TestTopAddsUp(t *testing.T) {
	g := newRandom(t)
	top := NewTop(64)
	var want Count
	big := netip.MustParseAddr("198.51.100.7")
	for i := range 20000 {
		e := firewall.Event{Kind: firewall.EventDrop, Proto: 6, Length: uint32(40 + g.IntN(100)),
			Verdict: firewall.Verdict{Rule: 100},
			Src: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(g.IntN(4)),
				byte(g.IntN(256)), byte(g.IntN(256))}), 1),
			Dst: netip.MustParseAddrPort("10.0.0.1:80")}
		if i%10 == 0 {
			e.Src = netip.AddrPortFrom(big, 1)
		}
		want.Packets, want.Bytes = want.Packets+1, want.Bytes+uint64(e.Length)
		top.Add(&e, time.Unix(int64(i), 0))
	}
	all, sum := top.Total()
	if all != want {
		t.Errorf("total %+v, want %+v", all, want)
	}
	list := top.Refused(1 << 20)
	if len(list) > 64 {
		t.Errorf("%d pairs are kept", len(list))
	}
	for _, r := range list {
		sum.Packets, sum.Bytes = sum.Packets+r.Packets, sum.Bytes+r.Bytes
	}
	if sum != want {
		t.Errorf("pairs and others make %+v, want %+v", sum, want)
	}
	if list[0].Src != big || list[0].Packets != 2000 || list[0].Rule != 100 {
		t.Errorf("the most refused is %+v", list[0])
	}
}

func TestTalkers(t *testing.T) {
	top := NewTop(64)
	now := time.Unix(1000, 0)
	a, b := netip.MustParseAddrPort("10.0.0.1:4000"), netip.MustParseAddrPort("10.0.0.9:80")
	state := func(port uint16, bytes uint64) firewall.State {
		return firewall.State{Proto: 6, From: netip.AddrPortFrom(a.Addr(), port), To: b,
			Packets: [2]uint64{1, 1}, Bytes: [2]uint64{bytes, 0}}
	}
	list := top.Talkers(slices.Values([]firewall.State{state(1, 100), state(2, 50)}), now, 10)
	if len(list) != 1 || list[0].States != 2 || list[0].Bytes != 150 || list[0].Packets != 4 ||
		list[0].Rate != 0 {
		t.Fatalf("%+v", list)
	}
	// One ends with 200 bytes, the other continues: 100 and 250 bytes more in two seconds.
	top.Add(&firewall.Event{Kind: firewall.EventEnd, Proto: 6, Src: netip.AddrPortFrom(a.Addr(), 1),
		Dst: b, Bytes: [2]uint64{150, 50}}, now)
	list = top.Talkers(slices.Values([]firewall.State{state(2, 300)}), now.Add(2*time.Second), 10)
	if len(list) != 1 || list[0].States != 1 || list[0].Rate != (200+300-150)/2 {
		t.Errorf("%+v", list)
	}
	list = top.Talkers(slices.Values([]firewall.State{state(2, 300)}), now.Add(3*time.Second), 10)
	if list[0].Rate != 0 {
		t.Errorf("%+v", list)
	}
}

// TestPingsAreOnePair: the id of a ping is not a port. All pings of a pair are one talker, and what
// is refused of them one line, whether they are live, have ended or were dropped.
func TestPingsAreOnePair(t *testing.T) {
	top := NewTop(64)
	now := time.Unix(1000, 0)
	from := func(id uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), id)
	}
	to := func(id uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr("10.0.0.9"), id)
	}
	for id := range uint16(3) {
		e := firewall.Event{Kind: firewall.EventEnd, Proto: packet.ProtoICMP, Src: from(id),
			Dst: to(id), Bytes: [2]uint64{84, 84}}
		top.Add(&e, now)
		e.Kind, e.Verdict.Rule = firewall.EventDrop, 100
		top.Add(&e, now)
	}
	live := []firewall.State{{Proto: packet.ProtoICMP, From: from(8), To: to(8)},
		{Proto: packet.ProtoICMP, From: from(9), To: to(9)}}
	list := top.Talkers(slices.Values(live), now, 10)
	if len(list) != 1 || list[0].States != 2 || list[0].Dst != to(0) {
		t.Errorf("talkers: %+v", list)
	}
	if refused := top.Refused(10); len(refused) != 1 || refused[0].Packets != 3 ||
		refused[0].Dst != to(0) {
		t.Errorf("refused: %+v", refused)
	}
}
