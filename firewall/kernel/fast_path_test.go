package kernel

import (
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// TestHopLimitOnTheFastPath: each datagram of a flow between pods, the first on the slow path and
// the others on the fast path, has lost one hop and is whole, over both families.
func TestHopLimitOnTheFastPath(t *testing.T) {
	v := newCluster(t, "add 1 check-state\nadd allow ip from any to any keep-state\n")
	for _, to := range []string{"10.88.0.3:9", "[fd00:88::3]:9"} {
		var server net.PacketConn
		v.must(v.b.Do(func() (err error) {
			server, err = net.ListenPacket("udp", to)
			return err
		}))
		defer server.Close()
		server.SetReadDeadline(time.Now().Add(patience))
		client, err := v.a.DialContext(context.Background(), "udp", to)
		v.must(err)
		defer client.Close()
		// The hop limit that a pod's kernel gives is 64.
		read := func() (n, hops int) {
			b := make([]byte, 2000)
			if to[0] != '[' {
				p := ipv4.NewPacketConn(server)
				v.must(p.SetControlMessage(ipv4.FlagTTL, true))
				n, cm, from, err := p.ReadFrom(b)
				v.must(err)
				_, err = server.WriteTo(b[:n], from)
				v.must(err)
				return n, cm.TTL
			}
			p := ipv6.NewPacketConn(server)
			v.must(p.SetControlMessage(ipv6.FlagHopLimit, true))
			n, cm, from, err := p.ReadFrom(b)
			v.must(err)
			_, err = server.WriteTo(b[:n], from)
			v.must(err)
			return n, cm.HopLimit
		}
		if to[0] != '[' {
			v.must(ipv4.NewPacketConn(server).SetControlMessage(ipv4.FlagTTL, true))
		} else {
			v.must(ipv6.NewPacketConn(server).SetControlMessage(ipv6.FlagHopLimit, true))
		}
		client.SetReadDeadline(time.Now().Add(patience))
		for i := range 20 {
			_, err := client.Write(make([]byte, 10+i))
			v.must(err)
			if n, hops := read(); n != 10+i || hops != 63 {
				t.Fatalf("%s: datagram %d came with %d bytes and %d hops left", to, i, n, hops)
			}
			if n, err := client.Read(make([]byte, 2000)); n != 10+i || err != nil {
				t.Fatalf("%s: answer %d came with %d bytes: %v", to, i, n, err)
			}
		}
	}
}
