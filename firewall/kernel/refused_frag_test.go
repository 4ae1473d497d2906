package kernel

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// elements returns how many elements a map has.
func elements[K, V any](t *testing.T, m *ebpf.Map) (n int) {
	t.Helper()
	var key K
	var value V
	all := m.Iterate()
	for all.Next(&key, &value) {
		n++
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRefusedFragmentsEvictNone: a first fragment that is refused on its way in leaves no record
// where those that pass have theirs, and none of its translation, wherever it is refused. The later
// ones are refused as it was, also if a rule lets later fragments pass. It ends the record of an
// earlier datagram with its identification, and a later one ends its refusal.
func TestRefusedFragmentsEvictNone(t *testing.T) {
	t.Parallel()
	const passes, refusedIn, refusedOut = 4000, 666, 667
	rules := "add 10 allow ip from any to any frag\nadd 20 deny udp from any 666 to any in\n" +
		"add 30 deny udp from any 667 to any out\nadd 40 allow ip from any to any\n"
	for name, c := range map[string]struct {
		to   netip.Addr
		port uint16
	}{"to a pod": {podA, 80}, "to a published port": {hostAddr, 8080}} {
		t.Run(name, func(t *testing.T) {
			f := newFrames(t, rules)
			f.publish(8080, 80)
			out := 0 // records of the earlier datagrams on their way out
			for _, from := range []uint16{refusedIn, passes, refusedIn, passes, refusedOut,
				refusedIn} {
				before := f.decisions(t)[firewall.ReasonFragFirst]
				first := piece{at: f.nic, src: outsideAddr, dst: c.to, id: 77,
					layer: build.UDP{SrcPort: from, DstPort: c.port, Len: 56}}
				later := first
				later.layer, later.proto = nil, packet.ProtoUDP
				want, verdicts := int32(wasShot), uint64(1)
				if from == passes {
					want, verdicts = redirected, 2
				}
				if code, _, _ := f.put(first); code != want {
					t.Fatalf("the first from port %d: %d", from, code)
				}
				switch from {
				case passes:
					out = 1
					f.checkRecords(t, 2, int(bit(c.to == hostAddr)))
				case refusedIn:
					f.checkRecords(t, out, 0)
				case refusedOut:
					out = 0
					f.checkRecords(t, 1, 0)
					verdicts += uint64(bit(c.to == podA)) // in and out
				}
				code, _, _ := f.put(later)
				got := f.decisions(t)[firewall.ReasonFragFirst] - before
				if code != want || got != verdicts {
					t.Errorf("a later one from port %d: %d, %d verdicts as the first, not %d", from,
						code, got, verdicts)
				}
			}
		})
	}
}

// checkRecords checks how many first fragments that have passed are recorded, and how many
// translations of them.
func (f *frames) checkRecords(t *testing.T, passed, translated int) {
	t.Helper()
	if n := elements[weirFragKey, weirFrag](t, f.engine.objects.Frags); n != passed {
		t.Errorf("%d records, not %d", n, passed)
	}
	if n := elements[weirNatFragKey, weirNatFrag](t, f.engine.objects.NatFrags); n != translated {
		t.Errorf("%d records of translations, not %d", n, translated)
	}
}
