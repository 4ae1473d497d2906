package kernel

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// tcpService gives f a service over TCP with ends of pod a and pod b.
func (f *frames) tcpService(trial uint64, to ...netip.AddrPort) {
	f.t.Helper()
	s := forward.Service{Proto: packet.ProtoTCP, At: end(virtual[0], 80)}
	for i, e := range to {
		b := forward.Backend{To: e}
		if i == 0 {
			b.ProbeEnd = trial
		}
		s.Backends = append(s.Backends, b)
	}
	f.setServices(s)
}

func syn(seq uint32) build.TCP {
	return build.TCP{Seq: seq, Flags: packet.FlagSYN, Window: 1000}
}

// TestServiceSpreadsFlows: clients that count their ports up reach all ends alike, and which end a
// client reaches differs from service to service, since each has a seed of its own.
func TestServiceSpreadsFlows(t *testing.T) {
	t.Parallel()
	f := newFrames(t, "add allow ip from any to any\n")
	f.virtualAddresses()
	to := []netip.AddrPort{end(podA, 80), end(podA, 81), end(podB, 80), end(podB, 81),
		end(podB, 82)}
	const flows = 4000
	ask := func() (all []netip.AddrPort) {
		t.Helper()
		f.must(f.engine.endWhere(func(*entry) bool { return true }))
		n := map[netip.AddrPort]float64{}
		for i := range flows {
			code, _, dst := f.send(end(outsideAddr, 1024+i), end(virtual[0], 80), syn(1))
			if code != redirected {
				t.Fatalf("SYN %d: %d", i, code)
			}
			n[dst]++
			all = append(all, dst)
		}
		share := 1 / float64(len(to))
		for _, e := range to { // a slot more or less of 256, and six standard deviations
			if d := math.Abs(n[e]/flows - share); d > 1.0/serviceSlots+
				6*math.Sqrt(share*(1-share)/flows) {
				t.Errorf("%s has %g of %d flows", e, n[e], flows)
			}
		}
		return all
	}
	f.tcpService(0, to...)
	first := ask()
	if f.tcpService(0, to...); !slices.Equal(ask(), first) {
		t.Error("the same services, and the flows go elsewhere")
	}
	f.setServices()
	f.tcpService(0, to...)
	again := ask()
	if slices.Equal(again, first) {
		t.Error("another service divides the flows in the same way")
	}
	s := forward.Service{Proto: packet.ProtoTCP, At: end(virtual[0], 80), Turn: 1}
	for _, e := range to {
		s.Backends = append(s.Backends, forward.Backend{To: e})
	}
	f.setServices(s)
	if slices.Equal(ask(), again) {
		t.Error("another turn divides the flows in the same way")
	}
}

// TestServiceCountsAnswersOfPods: a connection begins with the SYN that makes its translation, and
// only what the pod says counts as its answer. Nothing that the client sends, or leaves out, makes
// a pod that answers look as if it did not.
func TestServiceCountsAnswersOfPods(t *testing.T) {
	for name, rules := range map[string]string{"states": natRules,
		"no states": "add allow ip from any to any\n"} {
		t.Run(name, func(t *testing.T) {
			f := newFrames(t, rules)
			f.virtualAddresses()
			f.tcpService(0, end(podA, 80))
			client, at := end(outsideAddr, 4000), end(virtual[0], 80)
			want := func(what string, w forward.BackendCounters) {
				t.Helper()
				if n := f.counted(f.a); n != w {
					t.Errorf("%s: %+v, not %+v", what, n, w)
				}
			}
			f.send(client, at, syn(99))
			f.send(client, at, syn(99)) // again
			want("a SYN", forward.BackendCounters{Begun: 1})
			f.send(client, at, build.TCP{Seq: 99, Ack: 100, Window: 1000,
				Flags: packet.FlagSYN | packet.FlagACK})
			f.send(client, at, build.TCP{Seq: 100, Flags: packet.FlagRST})
			want("what the client claims", forward.BackendCounters{Begun: 1})
			client = end(outsideAddr, 4001)
			f.send(client, at, syn(99))
			f.send(end(podA, 80), client, build.TCP{Seq: 999, Ack: 100, Window: 1000,
				Flags: packet.FlagSYN | packet.FlagACK})
			want("a SYN and its answer", forward.BackendCounters{Begun: 2, Accepted: 1, Drawn: 1})
			client = end(outsideAddr, 4002)
			f.send(client, at, syn(99))
			f.send(end(podA, 80), client, build.TCP{Ack: 100,
				Flags: packet.FlagRST | packet.FlagACK})
			want("a refusal", forward.BackendCounters{Begun: 3, Accepted: 1, Refused: 1, Drawn: 1})
			client = end(outsideAddr, 4001) // once more with the ports of a moment ago
			f.send(end(podA, 80), client, build.TCP{Seq: 1000, Ack: 100,
				Flags: packet.FlagRST | packet.FlagACK})
			f.send(client, at, syn(9999))
			f.send(end(podA, 80), client, build.TCP{Seq: 5999, Ack: 10000, Window: 1000,
				Flags: packet.FlagSYN | packet.FlagACK})
			want("the same ports again", forward.BackendCounters{Begun: 3, Accepted: 1,
				Refused: 1, Drawn: 1})
			client = end(outsideAddr, 4003) // to the pod itself
			f.send(client, end(podA, 80), syn(99))
			want("a call of the pod itself", forward.BackendCounters{Begun: 3, Accepted: 1,
				Refused: 1, Drawn: 1})
		})
	}
}

// TestServiceCountsAnswersAtOnce: an answer counts as soon as it is translated, also if the CPU of
// the SYN has just made the translation and is still busy with it. Otherwise it would count never.
func TestServiceCountsAnswersAtOnce(t *testing.T) {
	f := newFrames(t, natRules)
	f.virtualAddresses()
	f.tcpService(0, end(podA, 80))
	at := end(virtual[0], 80)
	answer := build.TCP{Seq: 999, Ack: 100, Window: 1000, Flags: packet.FlagSYN | packet.FlagACK}
	spec := committed(t)
	f.engine.sizeAsLoaded(spec)
	busy := slices.Repeat(asm.Instructions{asm.FnKtimeGetNs.Call()}, 4000)
	meanwhileDo(t, spec.Programs["weir_in_slow"], "publish_once", "services", 1, busy...)
	var slow *ebpf.Program
	f.must(f.engine.load(spec, map[string]**ebpf.Program{"weir_in_slow": &slow}))
	defer slow.Close()
	f.must(f.engine.objects.SlowPaths.Put(uint32(slowIn), slow))
	began := time.Now()
	inStep(func(cpu, n int) {
		client := end(outsideAddr, 10000+n)
		if cpu == 0 {
			f.send(client, at, syn(99))
			return
		}
		for src := anyEnd; src != at; _, src, _ = f.send(end(podA, 80), client, answer) {
			if time.Since(began) > testTimeout {
				t.Errorf("flow %d: no answer was translated", n)
				return
			}
		}
	})
	if n := f.counted(f.a); n.Begun != firstFlows || n.Accepted != firstFlows {
		t.Errorf("%d flows: %+v", firstFlows, n)
	}
}

// TestServiceProbed: a pod that is probed gets exactly the connections that it may, then the
// other one gets all; one that is out gets none, and keeps its flows.
func TestServiceProbed(t *testing.T) {
	f := newFrames(t, natRules)
	f.virtualAddresses()
	f.tcpService(3, end(podA, 80), end(podB, 80))
	n := map[netip.AddrPort]int{}
	for i := range 200 {
		_, _, dst := f.send(end(outsideAddr, 1024+i), end(virtual[0], 80), syn(1))
		n[dst]++
	}
	if n[end(podA, 80)] != 3 || n[end(podB, 80)] != 197 {
		t.Errorf("on trial for 3 connections: %v", n)
	}
	f.must(f.engine.endWhere(func(*entry) bool { return true }))
	f.tcpService(0, end(podA, 80), end(podB, 80))
	var kept netip.AddrPort
	for i := 0; !kept.IsValid(); i++ {
		client := end(outsideAddr, 1024+i)
		if _, server := f.shake(client, end(virtual[0], 80)); server == end(podA, 80) {
			kept = client
		}
	}
	f.setServices(forward.Service{Proto: packet.ProtoTCP, At: end(virtual[0], 80),
		Backends: []forward.Backend{{To: end(podA, 80), Out: true}, {To: end(podB, 80)}}})
	for i := range 100 {
		if _, _, dst := f.send(end(outsideAddr, 3000+i), end(virtual[0], 80),
			syn(1)); dst != end(podB, 80) {
			t.Fatalf("a SYN goes to %s", dst)
		}
	}
	if _, _, dst := f.send(kept, end(virtual[0], 80), build.TCP{Seq: 100, Ack: 1000,
		Flags: packet.FlagACK, Window: 1000}); dst != end(podA, 80) {
		t.Errorf("a flow of the pod that is out goes to %s", dst)
	}
}

// TestServicePlaces: a pod counts in the same place for as long as it is in the set, and one that
// comes begins at zero.
func TestServicePlaces(t *testing.T) {
	f := newFrames(t, natRules)
	f.virtualAddresses()
	f.tcpService(0, end(podA, 80))
	f.send(end(outsideAddr, 4000), end(virtual[0], 80), syn(1))
	f.tcpService(0, end(podB, 80), end(podA, 80))
	if a, b := f.counted(f.a), f.counted(f.b); a.Begun != 1 || b.Begun != 0 {
		t.Errorf("a pod that stays has %+v, one that comes %+v", a, b)
	}
	f.tcpService(0, end(podB, 80))
	f.tcpService(0, end(podB, 80), end(podA, 80))
	if a := f.counted(f.a); a.Begun != 0 {
		t.Errorf("a pod that comes again has %+v", a)
	}
}

// TestErrorsThroughServices: what a pod has to complain about reaches the client as if the service
// had said it.
func TestErrorsThroughServices(t *testing.T) {
	v := newCluster(t, openRules)
	v.virtualAddresses()
	v.setServices(services(8080, v.a)...) // where no socket listens
	for _, from := range []*nstest.Node{v.outside, v.b.Node, v.a.Node, v.host} {
		for _, to := range serviceAt(8080) {
			if _, err := dialFrom(from, to, testTimeout); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("tcp from %s to %s: %v", from, to, err)
			}
			u, err := from.DialContext(context.Background(), "udp", to)
			v.must(err)
			u.SetDeadline(time.Now().Add(testTimeout))
			u.Write([]byte("anybody?"))
			if _, err := u.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("udp from %s to %s: %v", from, to, err)
			}
			u.Close()
		}
	}
	if n := v.counted(v.a); n.Begun != 8 || n.Refused != 8 || n.Accepted != 0 {
		t.Errorf("the pod has counted %+v", n)
	}
}
