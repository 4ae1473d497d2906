package soft

import (
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// keepaliveLast is how much of its life a state has left when its ends are asked whether they still live, as in ipfw
// (net.inet.ip.fw.dyn_keepalive_interval).
const keepaliveLast = 20 * time.Second

// Probe is a packet to be sent because of a state, not because of a packet.
type Probe struct {
	// To is the side that it goes to: In, as if it came from an interface, or Out.
	To     firewall.Direction
	Packet []byte
}

// keeper makes the keepalive probes of one tick.
type keeper struct {
	now  int64
	send func(Probe)
	life *flow.Timeouts
}

// alive sends a probe to both ends of an established TCP state that is near its end.
func (k *keeper) alive(e *entry, s *flow.State) {
	if s.Proto != packet.ProtoTCP || s.Phase() != flow.Established || s.Deadline(k.life)-k.now > int64(keepaliveLast) {
		return
	}
	for i := range s.Sides {
		if s.Sides[i].Flags&flow.Fin != 0 || s.Sides[i].Flags&flow.Acked == 0 {
			return
		}
	}
	key := e.key()
	for i := range s.Sides {
		if b := probe(&key, s, i, e.from()); b != nil {
			to := firewall.In
			// The packet that made the state went the way from side 0 to side 1.
			if made := e.id&infoOut != 0; made == (i == 1) {
				to = firewall.Out
			}
			k.send(Probe{To: to, Packet: b})
		}
	}
}

// probe returns a bare ACK to side i, as if from the other side, with a sequence number that the side has acknowledged already:
// it must answer with an ACK of its own (RFC 9293 3.10.7.4).
func probe(key *flow.Key, s *flow.State, i int, from flow.Dir) []byte {
	to, peer := &s.Sides[i], &s.Sides[1-i]
	src, dst := key.Ends(from)
	if i == 0 {
		src, dst = dst, src
	}
	var ip packet.Layer = packet.IPv4{Src: src.Addr(), Dst: dst.Addr()}
	if src.Addr().Is6() {
		ip = packet.IPv6{Src: src.Addr(), Dst: dst.Addr()}
	}
	b, err := packet.Build(ip, packet.TCP{SrcPort: src.Port(), DstPort: dst.Port(), Seq: to.Ack - 1, Ack: peer.Ack, Flags: packet.FlagACK})
	if err != nil {
		return nil // an end that is no address of a host
	}
	return b
}
