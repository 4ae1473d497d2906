package peers

import (
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule"
)

// cutRanges has the far ends of the connections of engineWith.
var cutRanges = []netip.Prefix{netip.MustParsePrefix("10.88.2.0/24")}

// engineWith returns an engine with connections.
func engineWith(t *testing.T, connections uint16) *soft.Engine {
	t.Helper()
	engine, err := soft.New(soft.Options{Options: firewall.DefaultOptions()})
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Load(enginetest.Compile(t, "add allow tcp from any to any keep-state",
		rule.CompileOptions{})); err != nil {
		t.Fatal(err)
	}
	near, far := netip.MustParseAddr("10.88.1.2"), netip.MustParseAddr("10.88.2.2")
	w := engine.Worker(0)
	send := func(dir firewall.Direction, src, dst netip.Addr, tcp build.TCP) {
		t.Helper()
		b, err := build.Packet(build.IPv4{Src: src, Dst: dst}, tcp)
		if err != nil {
			t.Fatal(err)
		}
		in := firewall.Input{Hook: firewall.Hook{Dir: dir}, Now: clock.Now()}
		out := make([]firewall.Verdict, 1)
		if w.EvaluateBatch(&in, [][]byte{b}, out); !out[0].Pass {
			t.Fatalf("%+v: %+v", tcp, out[0])
		}
	}
	for port := range connections {
		const syn, ack = packet.FlagSYN, packet.FlagACK
		client := 1000 + port
		send(firewall.Out, near, far, build.TCP{SrcPort: client, DstPort: 80, Seq: 100,
			Flags: syn})
		send(firewall.In, far, near, build.TCP{SrcPort: 80, DstPort: client, Seq: 500,
			Ack: 101, Flags: syn | ack})
		send(firewall.Out, near, far, build.TCP{SrcPort: client, DstPort: 80, Seq: 101,
			Ack: 501, Flags: ack})
	}
	return engine
}

// TestCutKeepsNoLock: while the tunnel takes no resets, the status and the watchdog need not wait
// for a peer that is removed. Other changes of the peers do, since they would mix with it.
func TestCutKeepsNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Engine: noStates{}})
		p.tunnel.Store(&tunnel{engine: engineWith(t, 1)}) // without a tick
		begin, took := time.Now(), time.Duration(0)
		var group sync.WaitGroup
		group.Go(func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.cutLocked(cutRanges, true)
		})
		synctest.Wait()
		if p.mu.TryLock() {
			p.mu.Unlock()
		} else {
			t.Fatal("the lock is taken")
		}
		group.Go(func() {
			if err := p.RemoveHost("other"); err != nil {
				t.Error(err)
			}
			took = time.Since(begin)
		})
		group.Wait()
		if took < resetsWithin {
			t.Errorf("another change began after %v", took)
		}
	})
}

// TestCutWaitsForAllResets: however many connections to a removed peer there are, each end gets its
// reset before the peer cannot be reached any more.
func TestCutWaitsForAllResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const connections = 500
		engine := engineWith(t, connections)
		tun := &tunnel{engine: engine, stop: make(chan struct{}), own: &injector{
			isMe:  func(netip.Addr) bool { return true },
			queue: make(chan soft.Probe, 4*connections)}}
		tun.done.Go(tun.tick)
		p := New(Config{Engine: noStates{}})
		p.tunnel.Store(tun)
		p.mu.Lock()
		p.cutLocked(cutRanges, true)
		p.mu.Unlock()
		if n := len(tun.own.queue); n != 2*connections {
			t.Errorf("%d ends got a reset, want %d", n, 2*connections)
		}
		close(tun.stop)
		tun.done.Wait()
	})
}
