package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
)

// TestImagesAreRewritten loads longer and shorter rule sets in turn. Whether an image gets a new
// map or that of the rules before the last, it holds what a map of its own would.
func TestImagesAreRewritten(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	e := newEngineWith(t, firewall.DefaultOptions())
	g := rand.New(rand.NewPCG(8, 9))
	same, halves := 0, 0
	for round := range 30 {
		var text strings.Builder
		for i := range 1 + g.IntN(1500) {
			fmt.Fprintf(&text, "add %d deny udp from 10.%d.%d.0/24 to any %d\n", i+1, g.IntN(9),
				g.IntN(256), 1000+g.IntN(3000))
		}
		spare := e.spare
		if err := e.Load(compile(t, text.String())); err != nil {
			t.Fatal(err)
		}
		if e.image == spare {
			same++
		}
		if round > 0 && (e.spare == nil || e.spare == e.image) {
			t.Fatalf("round %d: image %v, spare %v", round, e.image, e.spare)
		}
		if e.image.MaxEntries() > 4*chunk+4*chunk/64+1 {
			halves++
		}
		if got, want := rowsOf(t, e.image), rowsOf(t, ownImage(t, e)); !bytes.Equal(got, want) {
			t.Fatalf("round %d: the image differs from one with a map of its own", round)
		}
	}
	t.Logf("%d of 30 images were written to a map from before, %d in halves", same, halves)
	if same == 0 || same == 30 || halves == 0 || halves == 30 {
		t.Error("both ways have to be seen")
	}
}

// ownImage writes the image in force into a map of its own, which is as long as that in force.
func ownImage(t *testing.T, e *Engine) *ebpf.Map {
	in := imageInput{prog: e.prog, parity: e.slot(), serial: e.serial, flows: []uint8{0}}
	for i := range e.rules {
		in.ids = append(in.ids, e.rules[i].Id)
	}
	im, err := newImage(in)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: rowSize,
		MaxEntries: e.image.MaxEntries()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := im.writeParts(m, 0, len(im.parts)); err != nil { // by one processor
		t.Fatal(err)
	}
	return m
}

func rowsOf(t *testing.T, m *ebpf.Map) []byte {
	all, row := []byte(nil), make([]byte, rowSize)
	for i := range m.MaxEntries() {
		if err := m.Lookup(i, row); err != nil {
			t.Fatal(err)
		}
		all = append(all, row...)
	}
	return all
}

// TestNewRulesCountFromZero gives new rules, few and many, the indexes of rules that have counted.
func TestNewRulesCountFromZero(t *testing.T) {
	nstest.RequireRoot(t)
	e := newEngineWith(t, firewall.DefaultOptions())
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	for n, first := range map[int]int{50: maxIDs - 5000, 3000: maxIDs - 1000} { // over the end
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "add %d count udp from 10.0.0.%d to any\n", i+1, n%200)
		}
		e.ids.next = first
		for i := range uint32(n) {
			each := make([]weirCounter, cpus)
			for cpu := range each {
				each[cpu] = weirCounter{Packets: 1 + uint64(i), Bytes: 100, Last: 7}
			}
			index := (uint32(first) + i) % maxIDs
			if err := e.objects.Counters.Put(index, each); err != nil {
				t.Fatal(err)
			}
			if err := e.objects.Logged.Put(index, uint32(9)); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Load(compile(t, text.String())); err != nil {
			t.Fatal(err)
		}
		counts, err := e.Rules()
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range counts[:n] {
			var logged uint32
			index := e.rules[i].Id & 0xffff
			if err := e.objects.Logged.Lookup(index, &logged); err != nil {
				t.Fatal(err)
			}
			if index != uint32(first+i)%maxIDs {
				t.Fatalf("rule %d has index %d", c.Number, index)
			}
			if c.Packets != 0 || c.Bytes != 0 || c.Last != 0 || logged != 0 {
				t.Fatalf("%d rules: %+v, logged %d", n, c, logged)
			}
		}
	}
}

// TestStatesEndWithTheirRule: a Load that takes no rule away visits no state, one that does ends
// the states of that rule, also when others came in between.
func TestStatesEndWithTheirRule(t *testing.T) {
	nstest.RequireRoot(t)
	e := newEngineWith(t, firewall.DefaultOptions())
	const rules = "add 10 allow udp from 10.0.0.2 to any 53 keep-state\n" +
		"add 20 allow udp from 10.0.0.3 to any 53 keep-state\n"
	if err := e.Load(compile(t, rules)); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"10.0.0.2", "10.0.0.3"} {
		in := &firewall.Input{Now: time.Duration(monotonic()), Hook: firewall.Hook{Recv: 1}}
		if v, err := e.Evaluate(in, udpFrom(t, from)); err != nil || !v.Pass {
			t.Fatal(v, err)
		}
	}
	for _, c := range []struct {
		rules  string
		states int
	}{
		{rules + "add 30 deny tcp from any to any\n", 2},
		{"add 5 count ip from any to any\n" + rules, 2},
		{"add 20 allow udp from 10.0.0.3 to any 53 keep-state\n", 1},
		{"add 7 allow ip from any to any\n", 0},
	} {
		if err := e.Load(compile(t, c.rules)); err != nil {
			t.Fatal(err)
		}
		if e.unpurged {
			t.Error("states are still to be removed")
		}
		if n := countStates(t, e); n != c.states {
			t.Errorf("%d states after %q, want %d", n, c.rules, c.states)
		}
	}
}

func udpFrom(t *testing.T, from string) []byte {
	return enginetest.Packet(t, build.IPv4{Src: netip.MustParseAddr(from),
		Dst: netip.MustParseAddr("10.0.0.1")}, build.UDP{SrcPort: 4000, DstPort: 53})
}

func countStates(t testing.TB, e *Engine) (n int) {
	for _, err := range e.entries() {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}
