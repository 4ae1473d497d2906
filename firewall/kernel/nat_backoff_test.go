package kernel

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// perCPU returns what each CPU knows of itself.
func (f *frames) perCPU() (all []weirCpu) {
	f.t.Helper()
	f.must(f.engine.objects.Cpus.Lookup(uint32(0), &all))
	return all
}

// editCPUs changes what each CPU knows of itself.
func (f *frames) editCPUs(edit func(*weirCpu)) {
	f.t.Helper()
	editCPUs(f.t, f.engine, edit)
}

// editCPUs changes what each CPU knows of itself.
func editCPUs(t testing.TB, e *Engine, edit func(*weirCpu)) {
	t.Helper()
	var all []weirCpu
	if err := e.objects.Cpus.Lookup(uint32(0), &all); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		edit(&all[i])
	}
	if err := e.objects.Cpus.Update(uint32(0), all, ebpf.UpdateExist); err != nil {
		t.Fatal(err)
	}
}

// syn sends the first segment of a connection of pod a.
func (f *frames) syn(fromPort, toPort int) int32 {
	f.t.Helper()
	code, _, _ := f.send(end(podA, fromPort), end(outsideAddr, toPort),
		build.TCP{Seq: 99, Flags: packet.FlagSYN, Window: 1000})
	return code
}

// longestBackoff is more than NAT_BACKOFF of bpf/lib/nat_create.h, with time for the test itself.
const longestBackoff = time.Minute

// TestMasqueradeBacksOff: once the ports towards one end have run out, no packet towards that end
// searches again for a while, whatever has become free. Other ends have ports meanwhile.
func TestMasqueradeBacksOff(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 2003)
	for i := range 4 {
		f.shake(end(podA, 10000+i), end(outsideAddr, 80))
	}
	before := int64(f.engine.now())
	if code := f.syn(20000, 80); code != wasShot {
		t.Fatalf("a fifth connection by four ports: %d", code)
	}
	if n := f.decisions(t)[firewall.ReasonNATPorts]; n != 1 {
		t.Errorf("%d packets were refused as nat-ports", n)
	}
	dry := uint64(0)
	for _, c := range f.perCPU() {
		if c.NoPortEnd == 0 {
			continue
		}
		dry = c.NoPortEnd
		latest := int64(f.engine.now()) + int64(longestBackoff)
		if c.NoPortUntil <= before || c.NoPortUntil > latest {
			t.Errorf("searches again %v after the first refusal",
				time.Duration(c.NoPortUntil-before))
		}
	}
	if dry == 0 {
		t.Fatal("no CPU knows that the ports have run out")
	}
	f.must(f.engine.endWhere(func(*entry) bool { return true })) // all ports are free
	f.editCPUs(func(c *weirCpu) { c.NoPortEnd, c.NoPortUntil = dry, 1<<61 })
	if code := f.syn(20001, 80); code != wasShot {
		t.Errorf("a packet has searched for a port during the pause: %d", code)
	}
	if code := f.syn(20002, 81); code != redirected {
		t.Errorf("towards another end, during the pause: %d", code)
	}
	f.editCPUs(func(c *weirCpu) { c.NoPortUntil = 0 })
	if code := f.syn(20001, 80); code != redirected {
		t.Errorf("after the pause: %d", code)
	}
}

// resetOne resets a connection of a pod, whose translation can be evicted then, and lets the next
// search find it: one looks at a part of the table only.
func (f *frames) resetOne(pod netip.Addr, port int) {
	f.t.Helper()
	from, to := end(pod, port), end(outsideAddr, 80)
	f.send(from, to, build.TCP{Seq: 100, Ack: 1000, Flags: packet.FlagRST | packet.FlagACK})
	x := f.pairs()[fmt.Sprintf("%d %s>%s", packet.ProtoTCP, from, to)]
	if x == nil || x.phase() != flow.PhaseReset {
		f.t.Fatalf("no translation of %s that was reset", from)
	}
	var g weirGauge
	f.must(f.engine.objects.Gauges.Lookup(uint32(0), &g))
	g.NatClockHand = x.place / ways
	f.must(f.engine.objects.Gauges.Put(uint32(0), g))
}

// evictors returns the places of nat_counts whose translations are not searched now. With a time it
// changes until when.
func (f *frames) evictors(until int64) (all map[uint32]int64) {
	f.t.Helper()
	counts, err := readAll[uint32, weirNatCount](f.engine.objects.NatCounts)
	f.must(err)
	all = map[uint32]int64{}
	for place, of := range counts {
		if of.NoEvictUntil == 0 {
			continue
		}
		if all[place] = of.NoEvictUntil; until != 0 {
			of.NoEvictUntil = until
			f.must(f.engine.objects.NatCounts.Put(place, &of))
		}
	}
	return all
}

// TestPodBacksOff: once none of a pod's translations can be evicted for another, no packet searches
// for one again for a while, whatever other pods do meanwhile. A search takes long, and two pods
// could have one for each of their packets by turns.
func TestPodBacksOff(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 60000)
	f.setConfig(func(c *weirConfig) { c.MaxPodNats = 3 })
	pods := []netip.Addr{podA, podB}
	for _, pod := range pods {
		for i := range 3 {
			f.shake(end(pod, 10000+i), end(outsideAddr, 80))
		}
	}
	syn := func(pod netip.Addr, port int) (code int32) {
		t.Helper()
		code, _, _ = f.send(end(pod, port), end(outsideAddr, 80),
			build.TCP{Seq: 99, Flags: packet.FlagSYN, Window: 1000})
		return code
	}
	before := int64(f.engine.now())
	for n, pod := range pods {
		if code := syn(pod, 20000); code != wasShot {
			t.Fatalf("a fourth connection of three: %d", code)
		}
		dry := f.evictors(1 << 61)
		if len(dry) != n+1 {
			t.Errorf("%v have none to spare, after packets of %d pods", dry, n+1)
		}
		for _, until := range dry {
			if latest := int64(f.engine.now()) + int64(longestBackoff); until != 1<<61 &&
				(until <= before || until > latest) {
				t.Errorf("searches again %v after the first refusal", time.Duration(until-before))
			}
		}
	}
	for _, pod := range pods {
		f.resetOne(pod, 10000) // from here on there is one
		if code := syn(pod, 20001); code != wasShot {
			t.Errorf("%s has searched for a translation during the pause: %d", pod, code)
		}
	}
	f.evictors(1)
	for _, pod := range pods {
		f.resetOne(pod, 10001)
		if code := syn(pod, 20001); code != redirected {
			t.Errorf("%s, after the pause: %d", pod, code)
		}
	}
}

// TestFullTableBacksOff: while the table is full, and no translation can be evicted for a state,
// not each packet searches for one.
func TestFullTableBacksOff(t *testing.T) {
	f := newFrames(t, natRules)
	f.setConfig(func(c *weirConfig) { c.MaxStates = 0 })
	const hand = 7
	var g weirGauge
	for port, searches := range []bool{true, false} {
		f.must(f.engine.objects.Gauges.Lookup(uint32(0), &g))
		g.NatClockHand = hand
		f.must(f.engine.objects.Gauges.Put(uint32(0), g))
		if code := f.syn(20000+port, 80); code != wasShot {
			t.Errorf("a connection beyond the limit: %d", code)
		}
		f.must(f.engine.objects.Gauges.Lookup(uint32(0), &g))
		if moved := g.NatClockHand != hand; moved != searches {
			t.Errorf("packet %d searches for a translation to evict: %v", port, moved)
		}
		f.evictors(1 << 61)
	}
}
