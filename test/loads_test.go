package test

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// TestLoadsOpenNothing loads two rule files in turn. Both refuse datagrams to port 9 and take those
// to port 10; the rules of the one with the tables of the other would do the opposite.
func TestLoadsOpenNothing(t *testing.T) {
	t.Parallel()
	loadsOpenNothing(t, 5)
}

// TestLongLoadsOpenNothing loads more often.
func TestLongLoadsOpenNothing(t *testing.T) {
	t.Parallel()
	loadsOpenNothing(t, 100)
}

func loadsOpenNothing(t *testing.T, times int) {
	t.Helper()
	p := newPair(t)
	for port, answer := range map[int]bool{9: false, 10: true} {
		c, err := p.server.ListenPacket("udp", fmt.Sprintf(":%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if answer {
			go echoDatagrams(c)
			continue
		}
		defer func() {
			c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if n, from, err := c.ReadFrom(make([]byte, 100)); err == nil {
				t.Errorf("a datagram of %d bytes from %v came to a port that both files deny", n,
					from)
			}
		}()
	}
	one := p.file("one", `add 5 allow udp from me to any out
add 10 allow udp from table(t) to me 9
add 20 allow udp from table(u) to me 10
table t add 192.0.2.1
table u add 10.66.0.0/24
`)
	other := p.file("other", `add 5 allow udp from me to any out
add 10 deny udp from table(t) to me 9
add 20 deny udp from table(u) to me 10
add 30 allow udp from any to me 9,10
table t add 10.66.0.0/24
table u add 192.0.2.1
`)
	p.start("--iface", "eth0", "--rules", one)
	var end atomic.Bool
	var all sync.WaitGroup
	var denied, allowed atomic.Int64
	all.Go(func() { probeAlways(t, p.client, &denied, &end) })
	all.Go(func() { requestAlways(t, p.client, &allowed, &end) })
	continues := func() {
		t.Helper()
		d, a := denied.Load(), allowed.Load()
		eventually(t, "datagrams are sent", func() error {
			if denied.Load() == d || allowed.Load() == a {
				return fmt.Errorf("%d were denied, %d allowed", denied.Load(), allowed.Load())
			}
			return nil
		})
	}
	for range times {
		continues()
		p.weir("fw", "load", other)
		p.weir("fw", "load", one)
	}
	continues()
	end.Store(true)
	all.Wait()
	t.Logf("%d datagrams were denied, %d allowed", denied.Load(), allowed.Load())
}

func echoDatagrams(c net.PacketConn) {
	b := make([]byte, 100)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		c.WriteTo(b[:n], from)
	}
}

// probePause leaves the machine some time: a load takes a hundred times as long.
const probePause = 100 * time.Microsecond

// probeAlways sends to port 9 all the time and counts how often.
func probeAlways(t *testing.T, from *nstest.Node, n *atomic.Int64, end *atomic.Bool) {
	c, err := from.DialContext(t.Context(), "udp", "10.66.0.1:9")
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	for ; !end.Load(); n.Add(1) {
		c.Write([]byte("probe"))
		time.Sleep(probePause)
	}
}

// requestAlways sends to port 10, waits for each answer and counts those that came. One that does
// not come is an error.
func requestAlways(t *testing.T, from *nstest.Node, n *atomic.Int64, end *atomic.Bool) {
	c, err := from.DialContext(t.Context(), "udp", "10.66.0.1:10")
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	b := make([]byte, 100)
	for ; !end.Load(); n.Add(1) {
		c.Write([]byte("ask"))
		c.SetReadDeadline(time.Now().Add(testTimeout))
		if _, err := c.Read(b); err != nil {
			t.Errorf("datagram %d, which both files allow: %v", n.Load(), err)
			return
		}
		time.Sleep(probePause)
	}
}
