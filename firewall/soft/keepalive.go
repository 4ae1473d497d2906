package soft

import (
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// keepaliveLast is how much of its life a state has left when its ends get keepalive probes, as in
// ipfw (net.inet.ip.fw.dyn_keepalive_interval).
const keepaliveLast = 20 * time.Second

// Probe is a packet to send because of a state, not in answer to a packet.
type Probe struct {
	// To is its direction: In, as if it came from an interface, or Out.
	To     firewall.Direction
	Packet []byte
}

// keepaliveSender makes the keepalive probes of one tick.
type keepaliveSender struct {
	now  time.Duration
	send func(Probe)
	life *flow.Timeouts
}

// alive sends a probe to both ends of an established TCP state that is near its end. One end may
// have closed its side already: the other may be silent for long after that. Of a connection that
// was adopted no number may be known yet. Any number will do: an end answers one that it does not
// expect with its own (RFC 9293 3.10.7.4).
func (k *keepaliveSender) alive(e *entry, s *flow.State) {
	if s.Proto != packet.ProtoTCP || s.Phase() != flow.PhaseEstablished ||
		s.Deadline(k.life)-k.now > keepaliveLast {
		return
	}
	key := e.key()
	for i := range s.Sides {
		if b := probe(&key, s, i, e.from(), packet.FlagACK); b != nil {
			k.send(Probe{To: e.towards(i), Packet: b})
		}
	}
}

// towards returns the direction of a packet to side i. The packet that made the state went the way
// from side 0 to side 1.
func (e *entry) towards(i int) firewall.Direction {
	if out := e.id&infoOut != 0; out == (i == 1) {
		return firewall.Out
	}
	return firewall.In
}

// maxResets is how many resets a shard keeps for Tick, resetsPerTick how many one Tick sends.
const (
	maxResets     = 4096
	resetsPerTick = 64
)

// reset queues a reset for each end of an established TCP state that DeleteStates ends. Resets
// beyond maxResets are not sent: these ends notice when they next send.
func (s *shard) reset(e *entry) {
	var st flow.State
	e.load(&st)
	if st.Proto != packet.ProtoTCP || st.Phase() != flow.PhaseEstablished ||
		st.Sides[0].Flags&st.Sides[1].Flags&flow.SideAcked == 0 {
		return
	}
	key := e.key()
	for i := range st.Sides {
		if b := probe(&key, &st, i, e.from(), packet.FlagRST|packet.FlagACK); b != nil &&
			len(s.resets) < maxResets {
			s.resets = append(s.resets, Probe{To: e.towards(i), Packet: b})
		}
	}
}

// sendResets gives the next resets to send.
func (s *shard) sendResets(send func(Probe)) {
	n := min(len(s.resets), resetsPerTick)
	for _, r := range s.resets[:n] {
		send(r)
	}
	if s.resets = s.resets[n:]; len(s.resets) == 0 {
		s.resets = nil
	}
}

// probe returns a segment without data to side i, as if from the other side. A bare ACK has a
// sequence number that the side has acknowledged already: it must answer with an ACK of its own
// (RFC 9293 3.10.7.4). A reset has the one that the side expects next, so that it is believed (RFC
// 5961 3.2).
func probe(key *flow.Key, s *flow.State, i int, from flow.End, flags uint8) []byte {
	to, peer := &s.Sides[i], &s.Sides[1-i]
	seq := to.Ack
	if flags&packet.FlagRST == 0 {
		seq--
	}
	src, dst := key.Ends(from)
	if i == 0 {
		src, dst = dst, src
	}
	var ip build.Layer = build.IPv4{Src: src.Addr(), Dst: dst.Addr()}
	if src.Addr().Is6() {
		ip = build.IPv6{Src: src.Addr(), Dst: dst.Addr()}
	}
	b, err := build.Packet(ip, build.TCP{SrcPort: src.Port(), DstPort: dst.Port(), Seq: seq,
		Ack: peer.Ack, Flags: flags})
	if err != nil {
		return nil // an end that is not the address of a host
	}
	return b
}
