package overlay

import (
	"net"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// TestSlowPeer: far more goes to a peer than its link carries, whose queue is long. That does
// not delay the others.
func TestSlowPeer(t *testing.T) {
	lab := nstest.New(t)
	a := &side{Node: lab.Node("a"), addr: "10.99.0.1"}
	slow := &side{Node: lab.Node("b"), addr: "10.99.0.2"}
	fast := &side{Node: lab.Node("c"), addr: "10.99.0.3"}
	lab.Join(a.Node, "slow", "10.98.0.1/24", slow.Node, "wire", "10.98.0.2/24")
	lab.Join(a.Node, "fast", "10.97.0.1/24", fast.Node, "wire", "10.97.0.3/24")
	for _, s := range []*side{a, slow, fast} {
		s.start(t, nil)
	}
	a.peer(t, slow, nil, "10.98.0.2:51820")
	a.peer(t, fast, nil, "10.97.0.3:51820")
	slow.peer(t, a, nil, "10.98.0.1:51820")
	fast.peer(t, a, nil, "10.97.0.1:51820")
	echo(t, a, slow, 100)
	echo(t, a, fast, 100)
	if out, err := a.Command("tc", "qdisc", "add", "dev", "slow", "root", "tbf", "rate", "1mbit",
		"burst", "64kb", "limit", "40mb").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := a.DialContext(t.Context(), "udp", slow.addr+":4000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	end := make(chan struct{})
	defer close(end)
	go func() { // 48 Mbit/s
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			for range 5 {
				c.(*net.UDPConn).Write(make([]byte, 1200))
			}
		}
	}()
	for begin := time.Now(); a.dev.Stats().SendFull == 0; {
		if time.Since(begin) > 30*time.Second {
			t.Fatal("the slow link takes everything")
		}
		time.Sleep(100 * time.Millisecond)
	}
	// A round trip without the flood takes less than a millisecond. If the slow peer blocked the
	// others, each of these would take long; one that others on this machine delay says nothing,
	// nor does a datagram that is lost and sent again after a second.
	quickest := time.Hour
	for range 10 {
		begin := time.Now()
		echo(t, a, fast, 100, 1000)
		quickest = min(quickest, time.Since(begin))
	}
	if quickest > 900*time.Millisecond {
		t.Errorf("the quickest round trips to the other peer took %v", quickest)
	}
	begin := time.Now()
	download(t, a, fast, 4<<20, nil)
	t.Logf("a download from the other peer took %v", time.Since(begin))
}
