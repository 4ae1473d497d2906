package kernel

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/packet/build"
)

// TestTunnelHasNoRecv: what leaves by the kernel's tunnel has no recv, as what leaves by that in
// user space, and nothing there is a DHCP client's. At another interface of its type both is as
// everywhere. The soft engine says the same.
func TestTunnelHasNoRecv(t *testing.T) {
	t.Parallel()
	const rules = `
add 10 deny udp from any to any 53 recv eth0 xmit tun0
add 20 deny udp from any to any 68 in via tun0
add 65000 allow ip from any to any
`
	for name, tunnel := range map[string]bool{"tunnel": true, "other": false} {
		t.Run(name, func(t *testing.T) {
			g := newPairLab(t, rules)
			f, index := tunOf(t, g.server, "tun0", unix.ARPHRD_NONE, "10.9.0.1/24")
			if err := g.server.SetSysctl("net.ipv4.ip_forward", "1"); err != nil {
				t.Fatal(err)
			}
			ifs := []firewall.Interface{{Index: g.index, Name: "eth0", Addrs: []netip.Prefix{
				netip.MustParsePrefix("10.0.0.1/24")}}, {Index: index, Name: "tun0",
				Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")}, Tunnel: tunnel}}
			if err := g.engine.SetInterfaces(ifs); err != nil {
				t.Fatal(err)
			}
			if err := g.server.Do(func() error {
				_, err := g.engine.Attach(index)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			g.client.IP("route add 10.9.0.0/24 via 10.0.0.1")
			for _, port := range []string{"53", "54"} {
				c, err := g.client.DialContext(t.Context(), "udp", "10.9.0.2:"+port)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := c.Write([]byte("forwarded")); err != nil {
					t.Fatal(err)
				}
			}
			// the second datagram shows that the first would be there
			if got := receivedOn(f, 53, tunnel); got != tunnel {
				t.Errorf("what leaves has a recv: %v", !got)
			}
			agrees(t, rules, ifs, tunnel)
			offer := enginetest.Packet(t, build.IPv4{Src: netip.MustParseAddr("10.9.0.2"),
				Dst: netip.MustParseAddr("10.9.0.1")}, build.UDP{SrcPort: 67, DstPort: 68},
				build.Data("offer"))
			s, err := g.server.ListenPacket("udp", "10.9.0.1:68")
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := f.Write(offer); err != nil {
				t.Fatal(err)
			}
			s.SetReadDeadline(time.Now().Add(waitTime(!tunnel)))
			if _, _, err := s.ReadFrom(make([]byte, 100)); (err == nil) == tunnel {
				t.Errorf("an answer to a DHCP client: %v", err)
			}
		})
	}
}

// agrees checks that the soft engine has no recv at a tunnel, either.
func agrees(t *testing.T, rules string, ifs []firewall.Interface, tunnel bool) {
	t.Helper()
	e, err := soft.New(soft.Options{Options: firewall.DefaultOptions()})
	if err == nil {
		err = e.SetInterfaces(ifs)
	}
	if err == nil {
		err = e.Load(compile(t, rules))
	}
	if err != nil {
		t.Fatal(err)
	}
	got := e.Check(&firewall.Input{Hook: firewall.Hook{Dir: firewall.Out, Recv: ifs[0].Index,
		Xmit: ifs[1].Index}}, 17, netip.MustParseAddrPort("10.0.0.2:4000"),
		netip.MustParseAddrPort("10.9.0.2:53"))
	if got.Verdict.Pass != tunnel {
		t.Errorf("the soft engine: %+v", got.Verdict)
	}
}
