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
	a.Run("tc", "qdisc", "add", "dev", "slow", "root", "tbf", "rate", "1mbit",
		"burst", "64kb", "limit", "40mb")
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
	full := func() uint64 { return a.dev.Stats().SendFull }
	nstest.Eventually(t, "the slow link is full", func() bool { return full() > 0 })
	// What has to wait for the slow link waits minutes, with all that is behind it.
	begin := time.Now()
	for range 10 {
		echo(t, a, fast, 100, 1000)
	}
	download(t, a, fast, 4<<20, nil)
	t.Logf("the other peer took %v", time.Since(begin))
	after := full()
	nstest.Eventually(t, "the slow link is still full", func() bool { return full() > after })
}
