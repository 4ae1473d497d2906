package kernel

import (
	"math"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
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
	all := f.perCPU()
	for i := range all {
		edit(&all[i])
	}
	f.must(f.engine.objects.Cpus.Update(uint32(0), all, ebpf.UpdateExist))
}

// syn sends the first segment of a connection of pod a.
func (f *frames) syn(fromPort, toPort int) int32 {
	f.t.Helper()
	code, _, _ := f.send(end(podA, fromPort), end(outsideAddr, toPort),
		packet.TCP{Seq: 99, Flags: packet.FlagSYN, Window: 1000})
	return code
}

// longestDry is more than NAT_DRY of bpf/lib/nat_create.h, with time for the test itself.
const longestDry = time.Minute

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
		if c.Dry == 0 {
			continue
		}
		dry = c.Dry
		if c.DryUntil <= before || c.DryUntil > int64(f.engine.now())+int64(longestDry) {
			t.Errorf("searches again %v after the first refusal", time.Duration(c.DryUntil-before))
		}
	}
	if dry == 0 {
		t.Fatal("no CPU knows that the ports have run out")
	}
	f.must(f.engine.endWhere(func(*entry) bool { return true })) // all ports are free
	f.editCPUs(func(c *weirCpu) { c.Dry, c.DryUntil = dry, math.MaxInt64 })
	if code := f.syn(20001, 80); code != wasShot {
		t.Errorf("a packet has searched for a port during the pause: %d", code)
	}
	if code := f.syn(20002, 81); code != redirected {
		t.Errorf("towards another end, during the pause: %d", code)
	}
	f.editCPUs(func(c *weirCpu) { c.DryUntil = 0 })
	if code := f.syn(20001, 80); code != redirected {
		t.Errorf("after the pause: %d", code)
	}
}

// TestPodsShareBacksOff: once nothing of a pod's share of translations can be evicted, the pod's
// packets do not search again for a while.
func TestPodsShareBacksOff(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(1024, 65535)
	f.engine.mu.Lock()
	f.engine.config.MaxPodNats = 4
	err := f.engine.putConfigLocked()
	f.engine.mu.Unlock()
	f.must(err)
	for i := range 4 {
		f.shake(end(podA, 10000+i), end(outsideAddr, 80))
	}
	if code := f.syn(20000, 80); code != wasShot {
		t.Fatalf("a fifth connection with a share of four: %d", code)
	}
	pod := uint64(0)
	for _, c := range f.perCPU() {
		pod = max(pod, c.DryPod)
	}
	if pod == 0 {
		t.Fatal("no CPU knows that the share is used up")
	}
	// Now one could be evicted: a question that nobody has answered.
	f.must(f.engine.endWhere(func(x *entry) bool {
		k := x.key()
		return k.Low().Port() == 10000 || k.High().Port() == 10000
	}))
	f.send(end(podA, 10000), end(outsideAddr, 53), packet.UDP{})
	if all := f.pairs(); len(all) != 4 {
		t.Fatalf("%d translations, not 4", len(all))
	}
	f.editCPUs(func(c *weirCpu) { c.DryPod, c.DryPodUntil = pod, math.MaxInt64 })
	if code := f.syn(20001, 80); code != wasShot {
		t.Errorf("a packet has searched during the pause: %d", code)
	}
	f.editCPUs(func(c *weirCpu) { c.DryPodUntil = 0 })
	if code := f.syn(20001, 80); code != redirected {
		t.Errorf("after the pause: %d", code)
	}
	established := 0
	for _, x := range f.pairs() {
		if x.phase() == flow.PhaseEstablished {
			established++
		}
	}
	if established != 3 {
		t.Errorf("%d established connections are left of 3", established)
	}
}
