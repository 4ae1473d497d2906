package kernel

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// A client that uses one port for a published port and for the pod itself has two flows with the
// same ends in the pod.

// goes sends a packet and wants it to continue between two ends; an invalid one may be any.
func (f *frames) goes(what string, from, to netip.AddrPort, l build.Layer,
	src, dst netip.AddrPort) (netip.AddrPort, netip.AddrPort) {
	f.t.Helper()
	code, s, d := f.send(from, to, l)
	if code != redirected || (src.IsValid() && s != src) || (dst.IsValid() && d != dst) {
		f.t.Fatalf("%s: %d, %s > %s", what, code, s, d)
	}
	return s, d
}

// stateOf returns the state of no translation between two ends.
func (f *frames) stateOf(a, b netip.AddrPort) *entry {
	f.t.Helper()
	var found *entry
	for x, err := range f.engine.entries() {
		f.must(err)
		from, to := x.original()
		if !x.translation() && (from == a && to == b || from == b && to == a) {
			found = x
		}
	}
	if found == nil {
		f.t.Fatalf("no state of %s and %s", a, b)
	}
	return found
}

// untouched makes sure that a packet is refused for want of ports and changes nothing of a state.
func (f *frames) untouched(what string, from, to netip.AddrPort, l build.Layer,
	a, b netip.AddrPort) {
	f.t.Helper()
	before, drops, pairs := f.stateOf(a, b), f.drops(firewall.ReasonNATPorts), len(f.pairs())
	for range 3 {
		if code, src, dst := f.send(from, to, l); code != wasShot {
			f.t.Errorf("%s: %d, %s > %s", what, code, src, dst)
		}
	}
	if n := f.drops(firewall.ReasonNATPorts) - drops; n != 3 {
		f.t.Errorf("%s: %d of 3 are counted", what, n)
	}
	if after := f.stateOf(a, b); after.sides != before.sides || after.tag != before.tag {
		f.t.Errorf("%s: the other flow's state has changed:\n%+v\n%+v", what, before, after)
	}
	if n := len(f.pairs()); n != pairs {
		f.t.Errorf("%s: %d translations, %d before", what, n, pairs)
	}
}

var anyEnd netip.AddrPort

// TestPublishedAfterDirect: a flow through a published port gets another source port in the pod
// when a flow to the pod itself has the client's.
func TestPublishedAfterDirect(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	client, pod, port := end(outsideAddr, 5000), end(podA, 80), end(hostAddr, 8080)
	f.goes("a question to the pod", client, pod, build.UDP{}, client, pod)
	f.goes("its answer", pod, client, build.UDP{}, pod, client)
	before := f.stateOf(client, pod)
	moved, _ := f.goes("a question to the port", client, port, build.UDP{}, anyEnd, pod)
	if moved == client || moved.Addr() != client.Addr() || moved.Port() < 1024 {
		t.Errorf("the question comes from %s", moved)
	}
	f.goes("the same again", client, port, build.UDP{}, moved, pod)
	f.goes("its answer", pod, moved, build.UDP{}, port, client)
	if after := f.stateOf(client, pod); after.sides != before.sides {
		t.Errorf("the state of the other flow has changed:\n%+v\n%+v", before, after)
	}
	f.goes("another answer of the pod itself", pod, client, build.UDP{}, pod, client)
	f.goes("another question to the pod", client, pod, build.UDP{}, client, pod)

	tcp := func(seq, ack uint32, flags uint8) build.TCP {
		return build.TCP{Seq: seq, Ack: ack, Flags: flags, Window: 1000}
	}
	const synack = packet.FlagSYN | packet.FlagACK
	f.goes("a SYN to the pod", client, pod, tcp(100, 0, packet.FlagSYN), client, pod)
	f.goes("its answer", pod, client, tcp(900, 101, synack), pod, client)
	f.goes("its acknowledgement", client, pod, tcp(101, 901, packet.FlagACK), client, pod)
	moved, _ = f.goes("a SYN to the port", client, port, tcp(5100, 0, packet.FlagSYN), anyEnd, pod)
	f.goes("the same again", client, port, tcp(5100, 0, packet.FlagSYN), moved, pod)
	f.goes("its answer", pod, moved, tcp(5900, 5101, synack), port, client)
	f.goes("its acknowledgement", client, port, tcp(5101, 5901, packet.FlagACK), moved, pod)
	f.goes("data of the pod itself", pod, client, tcp(901, 101, packet.FlagACK), pod, client)
	f.goes("data to the pod", client, pod, tcp(101, 901, packet.FlagACK), client, pod)
}

// TestDirectAfterPublished: a flow to the pod itself is not translated. So it is refused while one
// through a published port has its ends in the pod, and changes nothing of that.
func TestDirectAfterPublished(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	client, pod, port := end(outsideAddr, 5000), end(podA, 80), end(hostAddr, 8080)
	f.goes("a question to the port", client, port, build.UDP{}, client, pod)
	f.untouched("one to the pod before the answer", client, pod, build.UDP{}, client, pod)
	f.goes("the answer", pod, client, build.UDP{}, port, client)
	f.goes("another question", client, port, build.UDP{}, client, pod)
	f.untouched("one to the pod", client, pod, build.UDP{}, client, pod)
	f.goes("another answer", pod, client, build.UDP{}, port, client)

	client = end(outsideAddr, 5001)
	f.shake(client, port)
	for what, s := range map[string]build.TCP{
		"a SYN":  {Seq: 7000, Flags: packet.FlagSYN, Window: 1000},
		"data":   {Seq: 100, Ack: 1000, Flags: packet.FlagACK, Window: 1000},
		"a FIN":  {Seq: 100, Ack: 1000, Flags: packet.FlagACK | packet.FlagFIN, Window: 1000},
		"an RST": {Seq: 100, Ack: 1000, Flags: packet.FlagRST | packet.FlagACK},
	} {
		f.untouched(what+" to the pod", client, pod, s, client, pod)
	}
	f.goes("data of the pod", pod, client,
		build.TCP{Seq: 1000, Ack: 100, Flags: packet.FlagACK, Window: 1000}, port, client)
}

// TestTwoPortsOfOnePod: two published ports that lead to one, called by one source port.
func TestTwoPortsOfOnePod(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	pod, client := end(podA, 80), end(outsideAddr, 5000)
	var all []forward.Published
	for _, port := range []int{8080, 8081} {
		all = append(all, forward.Published{Proto: packet.ProtoUDP, Host: end(hostAddr, port),
			Pod: pod})
	}
	f.must(f.host.Do(func() error { return f.engine.SetPublished(all) }))
	f.goes("the first", client, end(hostAddr, 8080), build.UDP{}, client, pod)
	moved, _ := f.goes("the second", client, end(hostAddr, 8081), build.UDP{}, anyEnd, pod)
	f.goes("the answer to the first", pod, client, build.UDP{}, end(hostAddr, 8080), client)
	f.goes("the answer to the second", pod, moved, build.UDP{}, end(hostAddr, 8081), client)
}

// TestClashWithoutPorts: where ports cannot be changed, the later flow is refused and changes
// nothing of the earlier.
func TestClashWithoutPorts(t *testing.T) {
	t.Parallel()
	f := newFrames(t, "add 1 check-state\nadd allow ip from any to any keep-state\n")
	client, pod := end(outsideAddr, 5000), end(podA, 3868)
	f.must(f.host.Do(func() error {
		return f.engine.SetPublished([]forward.Published{{Proto: packet.ProtoSCTP,
			Host: end(hostAddr, 3868), Pod: pod}})
	}))
	chunk := build.SCTP{SrcPort: client.Port(), DstPort: pod.Port()}
	f.goes("a packet to the pod", client, pod, chunk, client, pod)
	f.untouched("one to the port", client, end(hostAddr, 3868), chunk, client, pod)
}

// TestOnePortForTwoConnections does with the stacks of Linux what TestPublishedAfterDirect does
// with single frames.
func TestOnePortForTwoConnections(t *testing.T) {
	t.Parallel()
	v := newCluster(t, natRules)
	v.serve(v.a.Node, 80)
	v.publish(8080, 80)
	for i, order := range [][]string{{"10.88.0.2:80", "192.0.2.1:8080"},
		{"192.0.2.1:8080", "10.88.0.2:80"}} {
		from, second, most := end(outsideAddr, 30001+i), i == 0, 2*shortWait
		if second {
			most = testTimeout
		}
		first, err := dialBy(from, v, order[0], testTimeout)
		v.must(err)
		v.must(echoWord(first, "first"))
		c, err := dialBy(from, v, order[1], most)
		if (err == nil) != second {
			t.Errorf("%s after %s: %v", order[1], order[0], err)
		}
		if err == nil {
			v.must(echoWord(c, "second"))
		}
		v.must(echoWord(first, fmt.Sprint("first again, ", order[0])))
	}
}

// TestClashAtANetkit: a hook that has no upper device does not take a packet for one that another
// device has translated, because an earlier packet of the CPU was.
func TestClashAtANetkit(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	f.engine.mu.Lock()
	err := f.engine.needLocked("weir_in_netkit") // may take longer than the flow lives
	f.engine.mu.Unlock()
	f.must(err)
	f.goes("through the port", end(podB, 5000), end(hostAddr, 8080), build.UDP{}, netip.AddrPort{},
		end(podA, 80))
	f.engine.mu.Lock()
	f.engine.config.Uppers = 1
	err = f.engine.putConfigLocked()
	f.engine.mu.Unlock()
	f.must(err)
	f.editCPUs(func(c *weirCpu) { c.PassedBefore = 1 })
	at, frame := f.frame(end(podB, 5000), end(podA, 80), build.UDP{}, 0)
	before := f.drops(firewall.ReasonNATPorts)
	if code, _ := f.run(f.engine.objects.WeirInNetkit, 0, at.index, frame); code != wasShot ||
		f.drops(firewall.ReasonNATPorts) != before+1 {
		t.Errorf("%d, and %d packets are counted", code, f.drops(firewall.ReasonNATPorts)-before)
	}
}
