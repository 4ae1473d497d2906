package kernel

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// allowSuper lets a node's NIC send and take GSO packets above 64 KiB, of both families.
func allowSuper(t *testing.T, n *nstest.Node, name string) {
	t.Helper()
	l, err := n.Netlink().LinkByName(name)
	if err == nil {
		err = n.Netlink().SetLinkGSOSize(l.Index, 190_000)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// watchLongest reports the longest packet that the engine has evaluated.
func watchLongest(t *testing.T, n *nstest.Node, e *Engine) *atomic.Int64 {
	t.Helper()
	var longest atomic.Int64
	if err := e.Capture(func(f *firewall.Captured) {
		longest.Store(max(longest.Load(), int64(f.Length)))
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Do(func() error { return e.Watch(ctx, nil) }) }()
	t.Cleanup(func() { cancel(); <-done })
	return &longest
}

// awaitSuper talks until a GSO packet above 64 KiB is evaluated. How large packets are depends on
// how fast the machine is.
func awaitSuper(t *testing.T, c net.Conn, longest *atomic.Int64) {
	t.Helper()
	nstest.Eventually(t, "GSO packets are evaluated", func() bool {
		if err := echoText(c, longText); err != nil {
			t.Fatal(err)
		}
		return longest.Load() > 70_000
	})
}

var longText = strings.Repeat("0123456789abcdef", 1<<20)

// TestGSOPackets: TCP with GSO packets above 64 KiB (BIG TCP) works in both directions.
func TestGSOPackets(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules+"add deny ip from any to any\n")
	allowSuper(t, g.server, "eth0")
	allowSuper(t, g.client, "eth0")
	for _, to := range []string{"10.0.0.1:80", "[fd00::1]:80"} {
		t.Run(to, func(t *testing.T) {
			longest := watchLongest(t, g.server, g.engine)
			c, err := g.dial(to)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			awaitSuper(t, c, longest)
		})
	}
	if n := g.drops(t, firewall.ReasonDecode+firewall.Reason(packet.ReasonJumbo)); n != 0 {
		t.Errorf("%d packets dropped", n)
	}
}

// TestGSOPacketsToPods: they go straight to pods and from pod to NIC, too, and NICs that take none
// get segments of the size of the MTU.
func TestGSOPacketsToPods(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.masquerade(61000, 61999)
	for _, n := range []*nstest.Node{v.a.Node, v.b.Node} {
		allowSuper(t, n, "eth0")
	}
	for _, name := range []string{"poda", "podb"} {
		allowSuper(t, v.host, name)
	}
	v.serve(v.a.Node, 80)
	v.serve(v.outside, 80)
	for _, big := range []bool{false, true} {
		if big {
			allowSuper(t, v.host, "eth0")
			allowSuper(t, v.outside, "eth0")
		}
		for _, w := range []struct {
			from *nstest.Node
			to   string
		}{
			{v.b.Node, "10.88.0.2:80"}, {v.b.Node, "[fd00:88::2]:80"},
			{v.outside, "10.88.0.2:80"}, {v.outside, "[fd00:88::2]:80"},
			{v.a.Node, "192.0.2.2:80"}, {v.a.Node, "[2001:db8::2]:80"},
		} {
			t.Run(fmt.Sprintf("big NIC %v, %s to %s", big, w.from, w.to), func(t *testing.T) {
				before := v.hostSent(v.a) + v.hostSent(v.b)
				longest := watchLongest(t, v.host, v.engine)
				c, err := dialFrom(w.from, w.to, testTimeout)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if big || w.from != v.outside {
					awaitSuper(t, c, longest)
				} else if err := echoText(c, longText); err != nil {
					t.Fatal(err)
				}
				if n := v.hostSent(v.a) + v.hostSent(v.b) - before; n > 20 {
					t.Errorf("the stack sent %d packets to pods", n)
				}
			})
		}
	}
	if n := v.drops(firewall.ReasonDecode + firewall.Reason(packet.ReasonJumbo)); n != 0 {
		t.Errorf("%d packets dropped", n)
	}
}

// TestPipeCountsSegments: a GSO packet takes of a pipe what its segments have on the wire, headers
// included. The counters of the rule have only the bytes of the GSO packets.
func TestPipeCountsSegments(t *testing.T) {
	g := newPairLab(t, "pipe 1 config bw 1Mbit/s queue 8000KBytes\n"+
		"add 10 pipe 1 tcp from any to me 80 in\nadd 20 allow ip from any to any\n")
	c, err := g.dial("10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := echoText(c, longText[:4<<20]); err != nil {
		t.Fatal(err)
	}
	e := g.engine
	var full int64
	index := e.rules[0].Id & 0xffff
	for key, id := range e.ids.byKey {
		if key == e.prog.Pipes[0].Key {
			index = id & 0xffff
		}
	}
	if err := e.objects.RuleRates.Lookup(index, &full); err != nil {
		t.Fatal(err)
	}
	took := float64(full-e.now()) / 8000 // bytes: one takes 8 us
	rules, err := e.Rules()
	if err != nil {
		t.Fatal(err)
	}
	n := rules[0]
	segments := float64(4<<20) / 1460
	t.Logf("%d packets of %d bytes took %.0f", n.Packets, n.Bytes, took)
	if float64(n.Packets) > segments/2 {
		t.Skipf("%d packets: the cards do not coalesce", n.Packets)
	}
	if least := float64(4<<20) + segments*45; took < least {
		t.Errorf("the pipe gave %.0f bytes for %d packets, not %.0f", took, n.Packets, least)
	}
}

// TestSegmentsCountWhole: a GSO packet takes of its pod's rate and of a pipe what its segments have
// on the wire, headers included. The length in its IP header does not matter: the kernel cuts all
// of it.
func TestSegmentsCountWhole(t *testing.T) {
	t.Parallel()
	f := newFrames(t, "pipe 1 config bw 8Mbit/s queue 8000KBytes\n"+
		"add 10 pipe 1 udp from any to any in\nadd 20 allow ip from any to any\n")
	e := f.a.endpoint
	e.Rates = forward.Rates{Out: 8e6, OutBurst: 1 << 30} // a byte takes a microsecond
	f.must(f.host.Do(func() error { return f.engine.SetEndpoint(e) }))
	place := f.engine.endpoints[e.Index].Place*2 + uint32(firewall.Out)
	pipe := f.engine.ids.byKey[f.engine.prog.Pipes[0].Key] & 0xffff
	at, frame := f.frame(netip.AddrPortFrom(podA, 4000), netip.AddrPortFrom(podB, 53),
		build.UDP{SrcPort: 4000, DstPort: 53, Len: 16}, 800)
	short := slices.Clone(frame)
	copy(short[14:], enginetest.Packet(t, build.IPv4{Src: podA, Dst: podB, TTL: 64},
		build.UDP{SrcPort: 4000, DstPort: 53, Len: 16}, build.Data(make([]byte, 8))))
	const head, segment = 20 + 8, 8
	for what, frame := range map[string][]byte{"its length": frame, "a short length": short} {
		var b weirBucket
		f.must(f.engine.objects.Buckets.Lookup(place, &b))
		rate, full := monotonic()-int64(time.Minute), monotonic()+int64(time.Second)
		pipeFull := full
		b.Time = rate
		f.must(f.engine.objects.Buckets.Put(place, b))
		f.must(f.engine.objects.RuleRates.Put(pipe, full))
		if code := f.runSegments(at.index, frame, segment); code != redirected {
			t.Fatalf("%s: %d", what, code)
		}
		f.must(f.engine.objects.Buckets.Lookup(place, &b))
		f.must(f.engine.objects.RuleRates.Lookup(pipe, &pipeFull))
		if us := (b.Time - rate) / 1000; us != 100*(14+head+segment) {
			t.Errorf("%s: %d bytes of the rate, not %d", what, us, 100*(14+head+segment))
		}
		if us := (pipeFull - full) / 1000; us != 100*(head+segment) {
			t.Errorf("%s: %d bytes of the pipe, not %d", what, us, 100*(head+segment))
		}
	}
}

// runSegments has a GSO packet come in.
func (f *frames) runSegments(index uint32, frame []byte, segment int) int32 {
	f.t.Helper()
	context := make([]byte, 192) // struct __sk_buff
	binary.NativeEndian.PutUint32(context[40:], index)
	binary.NativeEndian.PutUint32(context[176:], uint32(segment))
	var code uint32
	f.must(f.host.Do(func() (err error) {
		code, err = f.engine.objects.WeirIn.Run(&ebpf.RunOptions{Data: frame, Context: context,
			DataOut: make([]byte, len(frame)+64)})
		return err
	}))
	return int32(code)
}
