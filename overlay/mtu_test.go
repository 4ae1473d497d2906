package overlay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tailscale/wireguard-go/tun"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

// syn makes a SYN with the given TCP options and a true checksum.
func syn(v6 bool, options ...byte) []byte {
	for len(options)%4 != 0 {
		options = append(options, 0)
	}
	p, o := gsoPacket(v6, len(options), 0, 1, tcpSyn)
	ip := int(o.CsumStart)
	copy(p[ip+20:], options)
	sumTCP(p, ip)
	return p
}

func sumTCP(p []byte, ip int) {
	p[ip+16], p[ip+17] = 0, 0
	binary.BigEndian.PutUint16(p[ip+16:], ^tun.Checksum(p[ip:], pseudo(p, ip)))
}

func pseudo(p []byte, ip int) uint16 {
	if ip == 20 {
		return tun.PseudoHeaderChecksum(6, p[12:16], p[16:20], uint16(len(p)-ip))
	}
	return tun.PseudoHeaderChecksum(6, p[8:24], p[24:40], uint16(len(p)-ip))
}

func TestClampMSS(t *testing.T) {
	mss := func(n uint16) []byte { return []byte{2, 4, byte(n >> 8), byte(n)} }
	for _, c := range []struct {
		name      string
		v6        bool
		options   []byte
		at        int // of the MSS in the options
		want      uint16
		untouched bool
	}{
		{"lowered", false, mss(1460), 2, 1380, false},
		{"lowered, v6", true, mss(1440), 2, 1360, false},
		{"fits", false, mss(1380), 0, 0, true},
		{"behind NOP, at an odd place", false, append([]byte{1}, mss(65535)...), 3, 1380, false},
		{"behind others", true, append([]byte{3, 3, 7, 4, 2}, mss(8960)...), 7, 1360, false},
		{"none", false, []byte{4, 2}, 0, 0, true},
		{"behind the end", false, append([]byte{0}, mss(1460)...), 0, 0, true},
		{"option of length 0", false, append([]byte{9, 0}, mss(1460)...), 0, 0, true},
		{"cut off", false, []byte{9, 2, 2, 4}, 0, 0, true},
	} {
		p := syn(c.v6, c.options...)
		before := bytes.Clone(p)
		clampMSS(p, 1420, false)
		if c.untouched {
			if !bytes.Equal(p, before) {
				t.Errorf("%s: changed", c.name)
			}
			continue
		}
		ip := 20
		if c.v6 {
			ip = 40
		}
		if got := binary.BigEndian.Uint16(p[ip+20+c.at:]); got != c.want {
			t.Errorf("%s: MSS %d, want %d", c.name, got, c.want)
		}
		got := binary.BigEndian.Uint16(p[ip+16:])
		if sumTCP(p, ip); got != binary.BigEndian.Uint16(p[ip+16:]) {
			t.Errorf("%s: checksum %#x is wrong", c.name, got)
		}
	}
	p := syn(false, mss(1460)...)
	sum := bytes.Clone(p[36:38])
	if clampMSS(p, 1420, true); !bytes.Equal(p[36:38], sum) {
		t.Error("a partial checksum was changed")
	}
	p = syn(false, mss(1460)...)
	p[33] = tcpAck
	before := bytes.Clone(p)
	if clampMSS(p, 1420, false); !bytes.Equal(p, before) {
		t.Error("a packet without SYN was changed")
	}
}

// TestMTUOfOnePeer: the lower MTU of one peer is not that of another.
func TestMTUOfOnePeer(t *testing.T) {
	var d tunDevice
	d.mtu.Store(1420)
	four, six := syn(false), syn(true)
	if d.mtuOf(four, firewall.Out) != 1420 || d.mtuOf(six, firewall.In) != 1420 {
		t.Error("without peers of a lower MTU the MTU differs")
	}
	end := func(p []byte, at, size int) netip.Prefix {
		a, _ := netip.AddrFromSlice(p[at : at+size])
		return netip.PrefixFrom(a, size*8)
	}
	d.pathMTU.Store(&[]rangeMTU{{end(four, 16, 4), 1312}, {end(six, 24, 16), 1328}})
	for _, c := range []struct {
		p    []byte
		dir  firewall.Direction
		want int
	}{{four, firewall.Out, 1312}, {four, firewall.In, 1420}, {six, firewall.Out, 1328},
		{six, firewall.In, 1420}, {four[:19], firewall.Out, 1420}, {nil, firewall.Out, 1420}} {
		if got := d.mtuOf(c.p, c.dir); got != c.want {
			t.Errorf("%x: %d, want %d", c.p, got, c.want)
		}
	}
}

// TestClampOfOnePeer: a SYN gets what fits the path to its peer, in both directions.
func TestClampOfOnePeer(t *testing.T) {
	var d tunDevice
	d.mtu.Store(1420)
	far := syn(false, 2, 4, 5, 0xb4)
	to, _ := netip.AddrFromSlice(far[16:20])
	d.pathMTU.Store(&[]rangeMTU{{netip.PrefixFrom(to, 32), 1312}})
	for dir, fits := range map[firewall.Direction]uint16{firewall.Out: 1312, firewall.In: 1420} {
		want := syn(false, 2, 4, 5, 0xb4)
		clampMSS(want, int(fits), false)
		p := bytes.Clone(far)
		if d.clamp(p, dir, false); !bytes.Equal(p, want) || bytes.Equal(p, far) {
			t.Errorf("%v: %x, want %x", dir, p, want)
		}
	}
}

// BenchmarkClamp is what a packet without SYN pays where 500 peers have lower MTUs.
func BenchmarkClamp(b *testing.B) {
	var d tunDevice
	d.mtu.Store(1420)
	var all []rangeMTU
	for i := range 500 {
		pods := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		all = append(all, rangeMTU{pods, 1380})
	}
	d.pathMTU.Store(&all)
	p := syn(false)
	p[33] = tcpAck
	for b.Loop() {
		d.clamp(p, firewall.Out, false)
	}
}

func FuzzClampMSS(f *testing.F) {
	f.Add(syn(false, 2, 4, 5, 0xb4), 1420)
	f.Add(syn(true, 1, 2, 4, 5, 0xb4), 1280)
	f.Add([]byte{0x4f}, 1420)
	f.Fuzz(func(t *testing.T, p []byte, mtu int) {
		if mtu < MinMTU || mtu > 65000 {
			return
		}
		before := bytes.Clone(p)
		clampMSS(p, mtu, false)
		changed := 0
		for i := range p {
			if p[i] != before[i] {
				changed++
			}
		}
		if changed > 4 { // two bytes of MSS, two of checksum
			t.Fatalf("%d bytes changed", changed)
		}
	})
}

// TestMTUFitsTheLink: the wire to the peer takes 1400 bytes, so the interface takes less than its
// default. Large packets get through a router in between that takes even less and sends no ICMP
// error.
func TestMTUFitsTheLink(t *testing.T) {
	lab := nstest.New(t)
	a, b := &side{Node: lab.Node("a"), addr: "10.99.0.1"},
		&side{Node: lab.Node("b"), addr: "10.99.0.2"}
	r := lab.Node("r")
	lab.Join(a.Node, "wire", "10.1.0.1/24", r, "left", "10.1.0.2/24")
	lab.Join(b.Node, "wire", "10.2.0.1/24", r, "right", "10.2.0.2/24")
	r.Sysctl("net.ipv4.ip_forward", "1")
	a.Route("10.2.0.0/24", "10.1.0.2")
	b.Route("10.1.0.0/24", "10.2.0.2")
	a.IP("link set wire mtu 1400")
	r.IP("link set left mtu 1400")
	r.IP("link set right mtu 1300")
	b.IP("link set wire mtu 1300")
	// The black hole: no ICMP about sizes comes back.
	r.Run("nft", "add table ip hole; add chain ip hole out { type filter hook output priority "+
		"0; }; add rule ip hole out icmp type destination-unreachable drop")
	a.start(t, nil)
	b.start(t, nil)
	a.peer(t, b, nil, "10.2.0.1:51820")
	b.peer(t, a, nil, "10.1.0.1:51820")
	for s, want := range map[*side]int{a: 1340, b: MinMTU} {
		link, err := s.Netlink().LinkByName("weir0")
		if mtu, _ := s.dev.tun.MTU(); err != nil || link.MTU != want || mtu != want {
			t.Errorf("%s: MTU %d and %d, want %d; %v", s, link.MTU, mtu, want, err)
		}
	}
	echo(t, a, b, 100, 1312, 5000)
	download(t, a, b, 3<<20, nil)
	download(t, b, a, 3<<20, nil)
}

// TestBlackHoleOverIPv6: the smallest link is in the middle, and the routers beside it swallow what
// is too large for it without a word.
//
//	a ---- r -- small -- q ---- b
func TestBlackHoleOverIPv6(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ small, want int }{{1400, 1312}, {1300, MinMTU}} {
		t.Run(fmt.Sprint(c.small), func(t *testing.T) {
			t.Parallel()
			lab := nstest.New(t)
			a, b := &side{Node: lab.Node("a"), addr: "10.99.0.1"},
				&side{Node: lab.Node("b"), addr: "10.99.0.2"}
			r, q := lab.Node("r"), lab.Node("q")
			lab.Join(a.Node, "wire", "fd01::1/64", r, "left", "fd01::2/64")
			lab.Join(r, "small", "fd02::1/64", q, "small", "fd02::2/64")
			lab.Join(b.Node, "wire", "fd03::1/64", q, "right", "fd03::2/64")
			a.Route("fd00::/8", "fd01::2")
			r.Route("fd03::/64", "fd02::2")
			q.Route("fd01::/64", "fd02::1")
			b.Route("fd00::/8", "fd03::2")
			for _, n := range []*nstest.Node{r, q} {
				n.Sysctl("net.ipv6.conf.all.forwarding", "1")
				n.IP(fmt.Sprint("link set small mtu ", c.small))
				n.Run("nft", "add table ip6 hole; add chain ip6 hole out { type filter hook "+
					"output priority 0; }; add rule ip6 hole out icmpv6 type packet-too-big drop")
			}
			for _, s := range []*side{a, b} { // the kernel forgets sooner than after ten minutes
				s.Sysctl("net.ipv6.route.mtu_expires", "2")
				s.start(t, nil)
			}
			a.peer(t, b, nil, "[fd03::1]:51820")
			b.peer(t, a, nil, "[fd01::1]:51820")
			download(t, a, b, 3<<20, nil)
			download(t, b, a, 3<<20, nil)
			for s, other := range map[*side]*side{a: b, b: a} {
				// The kernel fragments before the route is set.
				want := fmt.Sprintf("mtu %d", c.want)
				nstest.Eventually(t, fmt.Sprintf("the route of %s has %s", s, want), func() bool {
					out, err := s.Command("ip", "route", "show", other.addr).CombinedOutput()
					if err != nil {
						t.Fatalf("%v: %s", err, out)
					}
					return strings.Contains(string(out), want)
				})
				if mtu, _ := s.dev.tun.MTU(); mtu != DefaultMTU {
					t.Errorf("%s: the interface has MTU %d", s, mtu)
				}
			}
			echo(t, a, b, 100, c.want-28, 5000)
			time.Sleep(2500 * time.Millisecond)
			echo(t, a, b, c.want-28)
			if err := a.dev.RemovePeer(b.key.Public()); err != nil {
				t.Error(err)
			}
			if out, err := a.Command("ip", "route", "show", b.addr).CombinedOutput(); err != nil ||
				len(out) > 0 {
				t.Errorf("left is %s, %v", out, err)
			}
		})
	}
}

// TestSmallPathOverIPv6: behind the first router the wire is smaller than where the tunnel begins,
// and the router reports it, as IPv6 requires: only the sender may fragment there. Large packets
// get through.
func TestSmallPathOverIPv6(t *testing.T) {
	lab := nstest.New(t)
	a, b := &side{Node: lab.Node("a"), addr: "10.99.0.1"},
		&side{Node: lab.Node("b"), addr: "10.99.0.2"}
	r := lab.Node("r")
	lab.Join(a.Node, "wire", "fd01::1/64", r, "left", "fd01::2/64")
	lab.Join(b.Node, "wire", "fd02::1/64", r, "right", "fd02::2/64")
	r.Sysctl("net.ipv6.conf.all.forwarding", "1")
	a.Route("fd02::/64", "fd01::2")
	b.Route("fd01::/64", "fd02::2")
	r.IP("link set right mtu 1300")
	b.IP("link set wire mtu 1300")
	a.start(t, nil)
	b.start(t, nil)
	a.peer(t, b, nil, "[fd02::1]:51820")
	b.peer(t, a, nil, "[fd01::1]:51820")
	if mtu, _ := a.dev.tun.MTU(); mtu != DefaultMTU {
		t.Errorf("MTU %d where the wire is not small", mtu)
	}
	echo(t, a, b, 100, 1392, 5000)
	download(t, a, b, 3<<20, nil)
	download(t, b, a, 3<<20, nil)
}
