package kernel

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// piped evaluates a UDP packet of n bytes at a time in seconds.
func (e *Engine) piped(t *testing.T, seconds float64, from string, n int) firewall.Verdict {
	t.Helper()
	b := enginetest.Packet(t, build.IPv4{Src: netip.MustParseAddr(from),
		Dst: netip.MustParseAddr("10.0.0.1")}, build.UDP{SrcPort: 1000, DstPort: 53},
		make(build.Data, n-28))
	v, err := e.Evaluate(&firewall.Input{Hook: firewall.Hook{Recv: 1},
		Now: time.Duration(seconds * float64(time.Second))}, b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestPipeCarriesItsBandwidth: packets come for six minutes, twice as fast as the pipe is. Its
// bandwidth and what the bucket held passes. The rest is dropped by the rule, reason pipe. A packet
// larger than the bucket passes when that is full, and is paid for afterwards.
func TestPipeCarriesItsBandwidth(t *testing.T) {
	e := newEngine(t)
	if err := e.Load(compile(t, "pipe 1 config bw 8Kbit/s queue 3000Bytes\n"+
		"add 7 pipe 1 udp from any to any\n")); err != nil {
		t.Fatal(err)
	}
	passed := 0
	for k := range 720 { // 1000 bytes, twice a second
		switch v := e.piped(t, 1+float64(k)/2, "1.1.1.1", 1000); {
		case v.Pass:
			passed++
		case v.Reason != firewall.ReasonPipe || v.Rule != 7:
			t.Fatalf("packet %d: %+v", k, v)
		}
	}
	if want := 360 + 3; passed < want-1 || passed > want {
		t.Errorf("%d packets of 1000 bytes passed in six minutes, not %d", passed, want)
	}
	rules, err := e.Rules()
	if err != nil || rules[0].Packets != uint64(passed) {
		t.Errorf("the rule counts %d packets, %d passed (%v)", rules[0].Packets, passed, err)
	}
	if v := e.piped(t, 4000, "1.1.1.1", 3500); !v.Pass {
		t.Errorf("a packet larger than the full bucket: %+v", v)
	}
	if v := e.piped(t, 4000.5, "1.1.1.1", 28); v.Pass {
		t.Error("a packet while the bucket is in debt")
	}
	if v := e.piped(t, 4000.53, "1.1.1.1", 28); !v.Pass {
		t.Errorf("a packet when the bucket is out of debt: %+v", v)
	}
}

// TestFloodOpensNoPipe: when a flood has filled all buckets, sources that have none share one, and
// a source that has one keeps it.
func TestFloodOpensNoPipe(t *testing.T) {
	e := newEngine(t)
	e.config.RateSets = 2
	if err := e.Load(compile(t, "pipe 1 config bw 8Kbit/s queue 100B mask src-ip 0xffffffff\n"+
		"add 7 pipe 1 udp from any to any\n")); err != nil {
		t.Fatal(err)
	}
	if v := e.piped(t, 1, "1.1.1.1", 50); !v.Pass {
		t.Fatalf("the first packet: %+v", v)
	}
	passed := 0
	for k := range 500 {
		switch v := e.piped(t, 1, fmt.Sprintf("3.1.%d.%d", k/250, k%250+1), 50); {
		case v.Pass:
			passed++
		case v.Reason != firewall.ReasonRatesFull || v.Rule != 7:
			t.Fatalf("packet %d of the flood: %+v", k, v)
		}
	}
	if want := 2*ways - 1 + 2; passed != want { // places that were free, and two shared
		t.Errorf("%d packets of the flood passed, not %d", passed, want)
	}
	for k, want := range []bool{true, false} {
		if v := e.piped(t, 1, "1.1.1.1", 50); v.Pass != want {
			t.Errorf("packet %d of the source that was there before: %+v", k+2, v)
		}
	}
}

// TestPipeIsSharedAndKept: rules with one pipe share it. It stays with its number and
// configuration, whatever rules do, also under the next agent, and begins full with another.
func TestPipeIsSharedAndKept(t *testing.T) {
	const config, two = "pipe 1 config bw 1Kbit/s queue 100B\n",
		"add 10 pipe 1 udp from 1.0.0.0/8 to any\nadd 20 pipe 1 udp from 2.0.0.0/8 to any\n"
	g := newPairLab(t, config+two)
	load := func(rules string) {
		t.Helper()
		if err := g.engine.Load(compile(t, rules)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when, from string, want firewall.Reason) {
		t.Helper()
		if v := g.engine.piped(t, 1, from, 50); v.Reason != want {
			t.Errorf("%s: %v, not %v", when, v.Reason, want)
		}
	}
	check("one rule", "1.1.1.1", firewall.ReasonRule)
	check("the other", "2.1.1.1", firewall.ReasonRule)
	check("both together", "1.1.1.1", firewall.ReasonPipe)
	load(config + "add 5 count ip from any to any\nadd 30 pipe 1 udp from any to any\n")
	check("another rule", "3.1.1.1", firewall.ReasonPipe)
	g.reopen(t)
	load(config + two)
	check("the next agent", "2.1.1.1", firewall.ReasonPipe)
	load("pipe 1 config bw 1Kbit/s queue 101B\n" + two)
	check("another configuration", "2.1.1.1", firewall.ReasonRule)
}

// TestPipeOnEveryPath: neither the fast path, the verdict cache nor a state lets a packet go round
// its pipe.
func TestPipeOnEveryPath(t *testing.T) {
	const config = "pipe 1 config bw 1Kbit/s queue 100B\n"
	for name, rules := range map[string]string{
		"plain":      "add 10 pipe 1 udp from any to any 53\n",
		"condition":  "add 10 pipe 1 udp from any to any 53 recv any\n",
		"keep-state": "add 10 pipe 1 udp from any to any 53 keep-state\n",
		"check-state": "add 1 check-state\nadd 10 pipe 1 udp from any to any 53 recv any " +
			"keep-state\n",
		"flow name": "add 1 count udp from any to any keep-state :x\nadd 10 pipe 1 udp from any to " +
			"any 53 keep-state\n",
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			if err := e.Load(compile(t, config+rules)); err != nil {
				t.Fatal(err)
			}
			frame := udpFrame(t, 1, false)
			passed := 0
			for range 20 {
				ret, err := e.objects.WeirIn.Run(&ebpf.RunOptions{Data: frame})
				if err != nil {
					t.Fatal(err)
				}
				if int32(ret) == -1 { // TC_ACT_UNSPEC
					passed++
				}
			}
			if want := 100 / (len(frame) - 14); passed != want || want == 0 {
				t.Errorf("%d packets of %d bytes passed, not %d", passed, len(frame)-14, want)
			}
		})
	}
}

// TestFragmentsPayForThemselves: a later fragment takes its bytes of the pipe that has let the
// first one pass.
func TestFragmentsPayForThemselves(t *testing.T) {
	e := newEngine(t)
	if err := e.Load(compile(t, "pipe 1 config bw 1Kbit/s queue 2000B\n"+
		"add 10 pipe 1 udp from any to any\n")); err != nil {
		t.Fatal(err)
	}
	ip := build.IPv4{Src: netip.MustParseAddr("1.1.1.1"), Dst: netip.MustParseAddr("10.0.0.1"),
		ID: 7, Flags: packet.FragMF}
	send := func(l ...build.Layer) firewall.Verdict {
		t.Helper()
		v, err := e.Evaluate(&firewall.Input{Hook: firewall.Hook{Recv: 1}, Now: time.Second},
			enginetest.Packet(t, l...))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := send(ip, build.UDP{SrcPort: 1, DstPort: 2, Len: 4008}, make(build.Data, 8)); !v.Pass {
		t.Fatalf("the first fragment: %+v", v)
	}
	for k, want := range []firewall.Reason{firewall.ReasonFragFirst, firewall.ReasonPipe} {
		ip.FragOff = uint16(16 + 1000*k)
		ip.Proto = packet.ProtoUDP
		if v := send(ip, make(build.Data, 1000)); v.Reason != want || v.Rule != 10 ||
			v.Pass != (want == firewall.ReasonFragFirst) {
			t.Errorf("later fragment %d: %+v", k, v)
		}
	}
}

// TestPipeOfManyCPUs: CPUs that meet one pipe at once let pass what one would, never more.
func TestPipeOfManyCPUs(t *testing.T) {
	const packets = 24
	for _, mask := range []string{"mask src-ip /32", ""} {
		e := newEngine(t)
		frame := udpFrame(t, 0, false)
		if err := e.Load(compile(t, fmt.Sprintf("pipe 1 config bw 1Kbit/s queue %dB %s\nadd 1 "+
			"pipe 1 udp from any to any\n", packets*(len(frame)-14), mask))); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if _, err := e.objects.WeirIn.Run(&ebpf.RunOptions{Data: frame,
					Repeat: 2 * packets}); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		rules, err := e.Rules()
		if err != nil {
			t.Fatal(err)
		}
		least := uint64(packets - 1) // when both make the bucket at once
		if mask == "" {
			least = packets
		}
		if got := rules[0].Packets; got < least || got > packets {
			t.Errorf("%q: %d packets passed, not %d", mask, got, packets)
		}
	}
}
