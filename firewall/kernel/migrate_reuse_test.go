package kernel

import (
	"reflect"
	"testing"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestPortsUsedAgainDuringAMigration: a flow that begins with the ends of one that was copied, and
// has ended since, is the same in the next table. Nothing of the earlier flow stays there, also if
// the port on the wire leads to another pod now.
func TestPortsUsedAgainDuringAMigration(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	// the connection that ends lives on until the next engine is loaded, which may take seconds
	f.engine.config.LifeFin = f.engine.config.LifeEstablished
	f.must(f.engine.putConfigLocked())
	f.masquerade(2000, 3000)
	f.publish(8080, 80)
	client, second, server := end(outsideAddr, 30001), end(outsideAddr, 30002), end(outsideAddr, 53)
	to, pod, wire := end(hostAddr, 8080), end(podA, 80), end(hostAddr, 2500)
	f.shake(client, to)
	f.goes("a FIN", client, to, build.TCP{Seq: 100, Ack: 1000, Flags: finAck, Window: 1000},
		client, pod)
	f.goes("a FIN", pod, client, build.TCP{Seq: 1000, Ack: 101, Flags: finAck, Window: 1000},
		to, client)
	f.goes("a datagram", second, to, build.UDP{}, second, pod)
	f.goes("a question", end(podA, 2500), server, build.UDP{}, wire, server)
	before := f.replaceBegin(natRules)
	next := f.engine
	f.masquerade(2000, 3000)
	f.publish(8080, 80)

	f.engine = before
	f.must(before.endWhere(func(x *entry) bool { return x.tuple().proto == packet.ProtoUDP }))
	f.goes("an acknowledgement", client, to,
		build.TCP{Seq: 101, Ack: 1001, Flags: packet.FlagACK, Window: 1000}, client, pod)
	f.goes("a SYN", client, to, build.TCP{Seq: 50_000, Flags: packet.FlagSYN, Window: 1000},
		client, pod)
	f.goes("a datagram", second, to, build.UDP{}, second, pod)
	f.goes("a question of another pod", end(podB, 2500), server, build.UDP{}, wire, server)
	want := f.began(before)
	next.mu.Lock()
	err := next.followLocked()
	next.mu.Unlock()
	f.must(err)
	if got := f.began(next); !reflect.DeepEqual(got, want) {
		t.Errorf("the next table has %v\nnot %v", got, want)
	}

	f.engine = next
	f.replaceEnd()
	if got := f.began(next); !reflect.DeepEqual(got, want) {
		t.Errorf("in the end the next table has %v\nnot %v", got, want)
	}
	f.goes("the answer", pod, client, build.TCP{Seq: 9000, Ack: 50_001,
		Flags: packet.FlagSYN | packet.FlagACK, Window: 1000}, to, client)
	f.goes("its acknowledgement", client, to,
		build.TCP{Seq: 50_001, Ack: 9001, Flags: packet.FlagACK, Window: 1000}, client, pod)
	f.goes("an answer", pod, second, build.UDP{}, to, second)
	f.goes("an answer", server, wire, build.UDP{}, server, end(podB, 2500))
	if s, _ := f.stateOf(client, pod).state(); s.Phase() != flow.PhaseEstablished {
		t.Errorf("the connection is %s", s.Phase())
	}
	f.pairs()
}

// flowEntry names an entry of a table, whatever its place and flow name.
type flowEntry struct {
	tuple
	translation bool
}

// began returns when the entries of TCP and UDP in a table began.
func (f *frames) began(e *Engine) map[flowEntry]int64 {
	all := map[flowEntry]int64{}
	for x, err := range e.entries() {
		f.must(err)
		if proto := x.tuple().proto; proto == packet.ProtoTCP || proto == packet.ProtoUDP {
			all[flowEntry{x.tuple(), x.translation()}] = x.sides[0].Created
		}
	}
	return all
}
