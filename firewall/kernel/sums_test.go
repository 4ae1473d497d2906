package kernel

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// totals is everything that the engine counts about the entries of its table.
type totals struct {
	entries, halfOpen, answered, translations int
	sources                                   int               // twice the half-open states
	pods                                      map[uint32]int    // translations by place
	tracks                                    map[uint32][2]int // states, and those that are proved
}

// walked returns the sums of what is in the table.
func (f *frames) walked() totals {
	f.t.Helper()
	n := totals{pods: map[uint32]int{}, tracks: map[uint32][2]int{}}
	for x, err := range f.engine.entries() {
		f.must(err)
		n.entries++
		low, high := &x.sides[0], &x.sides[1]
		if x.translation() {
			if low.Flags&metaWire == 0 {
				n.translations++
				// NAT_POD_SHIFT, NAT_POD
				n.pods[high.Track>>3&16383-1]++
			}
			continue
		}
		if x.tag&tagHalfOpen != 0 {
			n.halfOpen++
			n.answered += int(x.tag >> 3 & 1)
		}
		if low.Flags&metaTracked == 0 {
			continue
		}
		place := low.Track - 1
		if _, era := f.trackAt(place); era != uint32(high.Created) {
			continue // given to another tuple: the state counts nowhere
		}
		of := n.tracks[place]
		of[0]++
		if low.Flags&(1<<26) != 0 { // META_TRACK_PROVED
			of[1]++
		}
		n.tracks[place] = of
	}
	n.sources = 2 * n.halfOpen
	return n
}

func (f *frames) trackAt(place uint32) (held uint64, era uint32) {
	f.t.Helper()
	var s weirTrackSet
	f.must(f.engine.objects.Tracks.Lookup(place/ways, &s))
	return s.Track[place%ways].Held, s.Track[place%ways].Era
}

// totals returns what the kernel counts.
func (f *frames) totals(t *testing.T) totals {
	t.Helper()
	s, err := f.engine.Stats()
	f.must(err)
	var g weirGauge
	f.must(f.engine.objects.Gauges.Lookup(uint32(0), &g))
	n := totals{entries: s.States, halfOpen: int(g.HalfOpen), answered: int(g.Answered),
		translations: int(g.Nats), sources: f.engine.sourcesInUse(t), pods: map[uint32]int{},
		tracks: map[uint32][2]int{}}
	if made := s.Created - sum(s.Removed); made != uint64(s.States) {
		t.Errorf("made less removed: %d, of %d states", int64(made), s.States)
	}
	for pod := range uint32(maxPods + 1) {
		var of weirNatCount
		f.must(f.engine.objects.NatCounts.Lookup(pod, &of))
		if of.Nats != 0 {
			n.pods[pod] = int(of.Nats)
		}
	}
	for place := range f.engine.config.TrackSets * ways {
		held, _ := f.trackAt(place)
		if of := [2]int{trackCount(held), int(held >> 28 & (1<<28 - 1))}; of != [2]int{} {
			n.tracks[place] = of
		}
	}
	return n
}

// mixedFlows are flows of all kinds: masqueraded, through a published port, through a service, and
// to a pod itself. The last have the ports of the client that another flow to the pod may have.
const mixedFlows = 600

func mixedFlow(n int) (from, to netip.AddrPort, tcp bool) {
	port := 10000 + n/6
	switch n % 6 {
	case 0:
		return end([]netip.Addr{podA, podB}[n/6%2], port), end(outsideAddr, 53), false
	case 1:
		return end([]netip.Addr{podA, podB}[n/6%2], port), end(outsideAddr, 80), true
	case 2:
		return end(outsideAddr, port), end(hostAddr, 8080), false
	case 3:
		return end(outsideAddr, port), end(hostAddr, 8080), true
	case 4:
		return end(outsideAddr, port), end(virtual[0], 80), true
	}
	return end(outsideAddr, port), end(podA, 80), n/6%2 == 0
}

// mixedTraffic sends packets of all flows, there and back, and deletes states meanwhile. It returns
// how many packets passed. `seen` holds between which ends the packets of a flow continue.
func (f *frames) mixedTraffic(random *rand.Rand, packets int,
	seen *[mixedFlows]atomic.Pointer[[2]netip.AddrPort]) (passed int) {
	const syn, ack, fin, rst = packet.FlagSYN, packet.FlagACK, packet.FlagFIN, packet.FlagRST
	for i := range packets {
		if i%200 == 199 {
			_, err := f.engine.DeleteStates(func(firewall.State) bool {
				return random.IntN(20) == 0
			})
			f.must(err)
		}
		n := random.IntN(mixedFlows)
		from, to, tcp := mixedFlow(n)
		back := seen[n].Load()
		answers := back != nil && random.IntN(2) == 0
		if answers {
			to, from = back[0], back[1]
		}
		var l build.Layer = build.UDP{}
		if tcp {
			s := build.TCP{Seq: 101, Ack: 901, Window: 1000,
				Flags: pick[uint8](random, ack, ack, ack|fin, rst)}
			if answers {
				s.Seq, s.Ack = s.Ack, s.Seq
			}
			if random.IntN(2) == 0 {
				if s.Seq--; answers {
					s.Flags = syn | ack
				} else {
					s.Seq += uint32(random.IntN(2)) * 5000
					s.Flags, s.Ack = syn, 0
				}
			}
			l = s
		}
		code, src, dst := f.send(from, to, l)
		if code == redirected {
			passed++
			if !answers {
				seen[n].Store(&[2]netip.AddrPort{src, dst})
			}
		}
	}
	return passed
}

// TestCountsAfterMixedTraffic has both CPUs send packets of flows of all kinds, with too little
// space for states, translations and tracks, while states are deleted. What the engine counts is
// what is in its table, and nothing when that is empty.
func TestCountsAfterMixedTraffic(t *testing.T) { mixOnTwoCPUs(t, 4000) }

// TestLongCountsAfterMixedTraffic sends more.
func TestLongCountsAfterMixedTraffic(t *testing.T) { mixOnTwoCPUs(t, 100000) }

func mixOnTwoCPUs(t *testing.T, packets int) {
	t.Helper()
	for name, first := range map[string]string{"look-up first": "",
		"refused on the way out": "add 1 prob 0.1 deny { tcp or udp } from any to any out\n"} {
		t.Run(name, func(t *testing.T) {
			f := newFrames(t, first+"add 2 check-state\n"+
				"add 3 allow tcp from any to any setup limit src-addr src-port 1\n"+
				"add 4 allow udp from any to any 53 limit src-addr src-port 2\n"+
				"add 5 allow udp from any to any keep-state\nadd 6 allow icmp from any to any\n")
			f.virtualAddresses()
			f.publish(8080, 80)
			f.masquerade(2000, 2079)
			f.tcpService(0, end(podA, 80), end(podB, 80))
			f.must(f.engine.endWhere(func(*entry) bool { return true }))
			f.setConfig(func(c *weirConfig) {
				c.Sets, c.TrackSets = 64, 8
				c.MaxStates, c.MaxHalfOpen, c.MaxNats, c.MaxPodNats = 450, 150, 100, 60
				// The batch of the default limit is larger than this limit: what one CPU has
				// not yet counted as removed would keep the other from making any state.
				c.Batch = c.MaxStates / 20 / 2
				// the sweep of the kernel removes nothing while the table is read
				hour := int64(time.Hour)
				c.LifeSyn, c.LifeEstablished, c.LifeFin, c.LifeRst = hour, hour, hour, hour
				c.LifeUdp, c.LifeUdpReply = hour, hour
			})
			var seen [mixedFlows]atomic.Pointer[[2]netip.AddrPort]
			seed, passed := testrand.Seed(t), [2]int{}
			onBothCPUs(func(cpu int) {
				passed[cpu] = f.mixedTraffic(rand.New(rand.NewPCG(seed, uint64(cpu))), packets,
					&seen)
			})
			want := f.walked()
			t.Logf("%d packets passed; %+v", passed, want)
			if min(passed[0], passed[1]) < packets/20 || want.entries < 50 {
				t.Error("the traffic is not mixed")
			}
			if got := f.totals(t); !reflect.DeepEqual(got, want) {
				t.Errorf("counted:\n%+v\nin the table:\n%+v", got, want)
			}
			f.must(f.engine.endWhere(func(*entry) bool { return true }))
			empty := totals{pods: map[uint32]int{}, tracks: map[uint32][2]int{}}
			if got := f.totals(t); !reflect.DeepEqual(got, empty) {
				t.Errorf("with an empty table: %+v", got)
			}
		})
	}
}
