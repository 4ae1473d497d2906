package kernel

import (
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestSamePortReachesThePod: a client of a published port calls the pod itself from the same port,
// and gets the pod's own answer.
func TestSamePortReachesThePod(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	client := end(outsideAddr, 4000)
	f.shake(client, end(hostAddr, 8080))
	f.send(client, end(hostAddr, 8080),
		build.TCP{Seq: 100, Ack: 1000, Flags: packet.FlagRST | packet.FlagACK})
	if x := f.only(); x.phase() != flow.PhaseReset {
		t.Fatalf("%s", x.phase())
	}
	f.send(client, end(podA, 80), build.TCP{Seq: 7000, Flags: packet.FlagSYN, Window: 1000})
	code, src, _ := f.send(end(podA, 80), client,
		build.TCP{Seq: 1, Ack: 7001, Flags: packet.FlagSYN | packet.FlagACK, Window: 1000})
	if code != redirected || src != end(podA, 80) {
		t.Errorf("the pod's answer: %d, from %s", code, src)
	}
	// The connection to the pod itself is live: a forged packet to the port does not turn its
	// answers.
	f.send(client, end(podA, 80),
		build.TCP{Seq: 7001, Ack: 2, Flags: packet.FlagACK, Window: 1000})
	if _, src, _ := f.send(client, end(hostAddr, 8080),
		build.TCP{Seq: 8000, Flags: packet.FlagSYN, Window: 1000}); src == client {
		t.Error("a SYN to the port has in the pod the ports of a live connection")
	}
	code, src, _ = f.send(end(podA, 80), client,
		build.TCP{Seq: 2, Ack: 7001, Flags: packet.FlagACK, Window: 1000})
	if code != redirected || src != end(podA, 80) {
		t.Errorf("what the pod sends then: %d, from %s", code, src)
	}
}

// TestPortsForManyQueries: when the ports towards one end are used up, the question that has been
// idle longest is evicted, an established connection never.
func TestPortsForManyQueries(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.masquerade(2000, 2099)
	kept, _ := f.shake(end(podA, 4000), end(outsideAddr, 53))
	for i := range 3000 {
		from, to := end(podA, 10000+i), end(outsideAddr, 53)
		code, src, dst := f.send(from, to, build.UDP{})
		if code != redirected || src.Addr() != hostAddr || src.Port() < 2000 || src.Port() > 2099 {
			t.Fatalf("question %d: %d from %s", i, code, src)
		}
		if code, _, to := f.send(dst, src, build.UDP{}); code != redirected || to != from {
			t.Fatalf("answer %d: %d to %s", i, code, to)
		}
	}
	if code, _, to := f.send(end(outsideAddr, 53), kept,
		build.TCP{Seq: 1000, Ack: 100, Flags: packet.FlagACK, Window: 1000}); code != redirected ||
		to != end(podA, 4000) {
		t.Errorf("the connection that was there before: %d to %s", code, to)
	}
	// Connections have the same ports, and no more.
	for i := range 100 {
		f.send(end(podA, 20000+i), end(outsideAddr, 80),
			build.TCP{Flags: packet.FlagSYN, Window: 1000})
	}
	f.must(f.engine.endWhere(func(*entry) bool { return true }))
	made := 0
	for i := range 200 {
		from := end(podA, 20000+i)
		code, src, dst := f.send(from, end(outsideAddr, 80),
			build.TCP{Seq: 99, Flags: packet.FlagSYN, Window: 1000})
		if code != redirected {
			break
		}
		f.send(dst, src, build.TCP{Seq: 999, Ack: 100, Flags: packet.FlagSYN | packet.FlagACK,
			Window: 1000})
		f.send(from, dst, build.TCP{Seq: 100, Ack: 1000, Flags: packet.FlagACK, Window: 1000})
		made++
	}
	established := 0
	for _, x := range f.pairs() {
		if x.phase() == flow.PhaseEstablished {
			established++
		}
	}
	// The keys decide how many of the ports 32 tries find: 94 in the median, 70 nearly always.
	if made < 50 || made != established {
		t.Errorf("%d connections were made by 100 ports, %d are there", made, established)
	}
	if code, _, _ := f.send(end(podB, 1), end(outsideAddr, 81),
		build.TCP{Flags: packet.FlagSYN, Window: 1000}); code != redirected {
		t.Errorf("towards another end the same ports are free: %d", code)
	}
	if d := f.decisions(t); d[firewall.ReasonNATPorts] == 0 {
		t.Error("nothing was counted as nat-ports")
	}
}

func (f *frames) decisions(t *testing.T) map[firewall.Reason]uint64 {
	t.Helper()
	all, err := f.engine.Decisions()
	f.must(err)
	n := map[firewall.Reason]uint64{}
	for d, c := range all {
		n[d.Reason] += c.Packets
	}
	return n
}

// TestCapsOnTranslations: a pod has no more than its share, the host keeps its capacity, and the
// counts are exact.
func TestCapsOnTranslations(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.masquerade(1024, 65535)
	f.publish(8080, 80)
	f.engine.mu.Lock()
	f.engine.config.MaxNats, f.engine.config.MaxPodNats = 300, 200
	err := f.engine.putConfigLocked()
	f.engine.mu.Unlock()
	f.must(err)
	kept, _ := f.shake(end(podB, 4000), end(outsideAddr, 53))
	most := 0
	for i := range 1000 {
		if code, _, _ := f.send(end(podA, 10000+i), end(outsideAddr, 1+i%50),
			build.UDP{}); code != redirected {
			t.Fatalf("question %d: %d", i, code)
		}
		if i%100 == 0 {
			most = max(most, len(f.pairs()))
		}
	}
	if n := len(f.pairs()); n != 201 || most > 201 {
		t.Errorf("%d translations, at most %d, with a share of 200 and one of another pod", n, most)
	}
	for i := range 1000 {
		if code, _, _ := f.send(end(outsideAddr, 10000+i), end(hostAddr, 8080),
			build.UDP{}); code != redirected {
			t.Fatalf("question %d through the port: %d", i, code)
		}
		if code, _, _ := f.send(end(podB, 10000+i), end(outsideAddr, 53),
			build.UDP{}); code != redirected {
			t.Fatalf("question %d of the other: %d", i, code)
		}
	}
	if n := len(f.pairs()); n != 300 {
		t.Errorf("%d translations, not 300", n)
	}
	if code, _, to := f.send(end(outsideAddr, 53), kept,
		build.TCP{Seq: 1000, Ack: 100, Flags: packet.FlagACK, Window: 1000}); code != redirected ||
		to != end(podB, 4000) {
		t.Errorf("the connection that was there before: %d to %s", code, to)
	}
	var n weirNatCount
	f.must(f.engine.objects.NatCounts.Lookup(f.engine.endpoints[f.a.endpoint.Index].Place, &n))
	if n.Nats > 200 {
		t.Errorf("pod a counts %d", n.Nats)
	}
	f.must(f.engine.endWhere(func(*entry) bool { return true }))
	for _, e := range f.engine.endpoints {
		f.must(f.engine.objects.NatCounts.Lookup(e.Place, &n))
		if n.Nats != 0 {
			t.Errorf("the pod at %d counts %d translations, and there are none", e.Place, n.Nats)
		}
	}
}

// TestRefusedCallOfTheHost: the host's own call of a published port is translated before it is
// evaluated; what is refused is undone, what passes continues.
func TestRefusedCallOfTheHost(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.serve(f.a.Node, 80)
	f.publish(8080, 666)
	for _, to := range []string{"192.0.2.1:8080", "127.0.0.1:8080", "[::1]:8080"} {
		if c, err := dialFrom(f.host, to, shortWait); err == nil {
			c.Close()
			t.Errorf("%s is open", to)
		}
		if all := f.pairs(); len(all) != 0 {
			t.Errorf("%s: a refused call left %v", to, all)
		}
	}
	f.publish(8080, 80)
	c, err := dialFrom(f.host, "192.0.2.1:8080", testTimeout)
	f.must(err)
	f.must(echoWord(c, "a word"))
	if x := f.only(); x.phase() != flow.PhaseEstablished || x.sides[0].Flags&metaFresh != 0 {
		t.Errorf("%s, flags %x", x.phase(), x.sides[0].Flags)
	}
	c.Close()
	nstest.Eventually(t, "the call ends with its connection", func() bool {
		return len(f.pairs()) == 0
	})
}
