package kernel

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
)

// TestClaimedEntry meets an entry that another CPU has claimed on the fast path and not filled yet.
// It will hold the flow, so no second one is made, and the packet passes; when it is gone, the next
// packet makes one.
func TestClaimedEntry(t *testing.T) {
	e := newEngine(t)
	if err := e.Load(compile(t,
		"add check-state\nadd allow udp from any to any keep-state\n")); err != nil {
		t.Fatal(err)
	}
	short, long := udpFrame(t, 1, false), udpFrame(t, 1, false, 1, 1, 1, 1)
	live := func(frame []byte) (states []*entry) {
		t.Helper()
		ret, err := e.objects.WeirIn.Run(&ebpf.RunOptions{Data: frame})
		if err != nil || int32(ret) != -1 { // TC_ACT_UNSPEC
			t.Fatalf("the program said %d, %v", int32(ret), err)
		}
		for x, err := range e.entries() {
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, x)
		}
		return states
	}
	first := live(long)
	if len(first) != 1 {
		t.Fatalf("%d states of one flow", len(first))
	}
	set, way, tag := first[0].place/ways, first[0].place%ways, first[0].tag
	clear := func() {
		t.Helper()
		if _, err := e.DeleteStates(func(firewall.State) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	clear()
	put := func(tag uint64) {
		t.Helper()
		var line weirTagLine
		if err := e.objects.Tags.Lookup(set, &line); err != nil {
			t.Fatal(err)
		}
		line.Tag[(way+1)%ways] = tag
		if err := e.objects.Tags.Put(set, &line); err != nil {
			t.Fatal(err)
		}
	}
	put(tag&^tagMask | tagHalfOpen | 1)
	for name, frame := range map[string][]byte{"short": short, "long": long} {
		if n := len(live(frame)); n != 0 {
			t.Errorf("the %s way: %d states beside one in the making", name, n)
		}
		time.Sleep(40 * time.Millisecond) // until what was given up may be used again
	}
	put(0)
	for name, frame := range map[string][]byte{"short": short, "long": long} {
		if n := len(live(frame)); n != 1 {
			t.Errorf("the %s way: %d states, with none in the making any more", name, n)
		}
		clear()
	}
	e.agreeOnStates(t)
}

// agreeOnStates compares the counts in the kernel with what is there.
func (e *Engine) agreeOnStates(t *testing.T) {
	t.Helper()
	s, err := e.Stats()
	if err != nil {
		t.Fatal(err)
	}
	live := 0
	for range e.entries() {
		live++
	}
	if s.States != live || s.HalfOpen != live {
		t.Errorf("the kernel counts %d states, %d half-open; the table holds %d", s.States,
			s.HalfOpen, live)
	}
}
