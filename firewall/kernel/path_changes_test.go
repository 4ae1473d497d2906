package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// Changes between the packets of TestCachesChangeNoVerdict.

// load loads one of mixRules.
func (v *pathRun) load(n int) {
	v.must(v.engine.SetNextHops([]NextHop{{To: outsideAddr, Via: outsideAddr,
		Interface: v.nic.index}}))
	v.must(v.engine.Load(compile(v.t, mixRules[n])))
}

// reset undoes all changes.
func (v *pathRun) reset() {
	v.load(0)
	v.must(v.engine.SetTable("some", nil))
	v.setAddresses(0)
	v.setPods(0)
	v.setTranslations(0)
	v.must(v.engine.SetNetfilter(false))
	v.must(v.engine.setCookies(0))
	v.must(v.engine.SetQdiscLinks(nil))
	v.must(v.engine.SetStack(false, nil))
	v.must(v.engine.SetRouteMTUs(nil))
}

// setAddresses gives the host other addresses, or its NIC other settings. The kernel's own stay.
func (v *pathRun) setAddresses(n int) {
	ifs := slices.Clone(v.base)
	for i := range ifs {
		in := &ifs[i]
		in.Addrs = slices.Clone(in.Addrs)
		switch {
		case n == 1 && in.Name == "eth0":
			in.Addrs = append(in.Addrs, netip.MustParsePrefix("192.0.2.9/24"),
				netip.MustParsePrefix("2001:db8::9/64"), netip.MustParsePrefix("fe80::9/64"))
		case n == 2 && in.Name == "eth0":
			in.Addrs = []netip.Prefix{netip.MustParsePrefix("192.0.2.9/24")}
		case n == 3 && in.Name == "eth0":
			in.AcceptLocal = true
		case n == 4 && in.Name == "eth0":
			in.ReversePath = firewall.ReverseStrict
		case n == 5 && in.Name == "lo":
			in.Local = []netip.Prefix{netip.MustParsePrefix("192.0.2.8/29"),
				netip.MustParsePrefix("2001:db8::8/125")}
		case n == 6 && in.Name == "eth0":
			in.Name = "wan0"
		}
	}
	v.must(v.engine.SetInterfaces(ifs))
}

// setPods takes pods away, moves an address, or gives a pod limits that it does not reach.
func (v *pathRun) setPods(n int) {
	a, b := v.a.endpoint, v.b.endpoint
	v.must(v.host.Do(func() error {
		switch n {
		case 1:
			return v.engine.DeleteEndpoint(b.Index)
		case 2:
			if err := v.engine.DeleteEndpoint(a.Index); err != nil {
				return err
			}
			return v.engine.DeleteEndpoint(b.Index)
		case 3: // the one has the addresses of the other
			if err := v.engine.DeleteEndpoint(a.Index); err != nil {
				return err
			}
			b.Addrs = a.Addrs
			return v.engine.SetEndpoint(b)
		case 4:
			a.Rates = forward.Rates{In: 1 << 40, InBurst: 1 << 30, Out: 1 << 40, OutBurst: 1 << 30}
			a.MTU = 1400
		}
		if err := v.engine.SetEndpoint(a); err != nil {
			return err
		}
		return v.engine.SetEndpoint(b)
	}))
}

// setTranslations sets what is translated: bits for pods, published ports, others and services.
func (v *pathRun) setTranslations(n int) {
	v.must(v.host.Do(func() error {
		m := forward.Masquerade{Sources: podRanges, Except: podRanges,
			Ports: []forward.PortRange{{First: 2000, Last: 2999}}}
		if n&1 == 0 {
			m.Sources, m.Except = nil, nil
		}
		other := netip.MustParseAddr("192.0.2.44")
		var forwards []forward.Published
		if n&4 != 0 {
			m.Others = []forward.SourceNAT{{Source: netip.PrefixFrom(other, 32)}}
			forwards = []forward.Published{
				{Proto: packet.ProtoTCP, Host: end(hostAddr, 80), Pod: end(other, 80)},
				{Proto: packet.ProtoUDP, Host: end(hostAddr, 2000), Pod: end(other, 53)},
			}
		}
		if err := v.engine.SetMasquerade(m); err != nil {
			return err
		}
		var all []forward.Published
		if n&2 != 0 {
			all = []forward.Published{
				{Proto: packet.ProtoTCP, Host: end(hostAddr, 8080), Pod: end(podA, 80)},
				{Proto: packet.ProtoUDP, Host: end(netip.IPv6Unspecified(), 8081),
					Pod: end(v.a.endpoint.Addrs[1], 53)},
			}
		}
		if err := v.engine.SetForwards(forwards); err != nil {
			return err
		}
		var services []forward.Service
		if n&8 != 0 { // of one pod, for the secrets by which flows are divided are random
			services = []forward.Service{
				{Proto: packet.ProtoTCP, At: end(virtual[0], 80), Backends: []forward.Backend{
					v.a.backend(0, 80)}},
				{Proto: packet.ProtoUDP, At: end(virtual[0], 53)},
				{Proto: packet.ProtoUDP, At: end(virtual[1], 2000), Backends: []forward.Backend{
					v.b.backend(1, 53)}},
			}
		}
		if err := v.engine.SetServices(services); err != nil {
			return err
		}
		return v.engine.SetPublished(all)
	}))
}

// mixRules are rule sets with and without states, translations and next hops.
var mixRules = []string{
	"add 1 check-state\nadd 2 deny ip from any to any 666\nadd 3 allow udp from any to any 7\n" +
		"add 5 allow tcp from any to any setup keep-state\n" +
		"add 6 allow udp from any to any keep-state\nadd 7 allow icmp from any to any\n" +
		"add 8 allow ipv6-icmp from any to any\nadd 9 deny ip from any to any\n",
	"add 1 check-state\nadd 3 deny ip from table(some) to any\n" +
		"add 4 deny ip from me to any in\nadd 5 allow ip from any to me keep-state\n" +
		"add 6 deny ip from any to any 80 recv wan*\nadd 7 allow ip from any to any frag\n" +
		"add 8 allow ip from any to any ipttl 64,255 keep-state\nadd 9 deny ip from any to any\n",
	"add 3 deny ip from table(some) to any\nadd 4 deny ip from any to me 53\n" +
		"add 5 allow tcp from any to any established\nadd 6 allow ip from any to any\n",
	"add 1 allow ip from any to any\n",
	"add 1 check-state\nadd 2 allow udp from any to any 53 limit src-addr 2\n" +
		"add 3 reset tcp from any to any 666\n" +
		"add 4 deny ip from any to any out recv pod:a xmit pod:b\n" +
		"add 5 skipto 7 ip from any to any in\nadd 6 deny udp from any to any 2000\n" +
		"add 7 allow ip from any to any keep-state\n",
	"nat 1 config if eth0 redirect_port tcp 10.88.0.2:80 7 redirect_port udp 192.0.2.44:53 7\n" +
		"add 1 nat 1 ip4 from any to any via eth0\nadd 2 check-state\n" +
		"add 3 deny tcp from any to any 666\nadd 4 allow ip from any to any keep-state\n",
	"disable one_pass\nnat 1 config if eth0\nadd 1 check-state\n" +
		"add 2 nat 1 ip4 from any to any via eth0\nadd 3 count tag 7 ip from any to any 53\n" +
		"add 4 deny udp from any to any 80 tagged 7\nadd 4 allow ip from any to any keep-state\n",
	"add 1 fwd 192.0.2.2 ip4 from 10.88.0.0/24 to any 53 in\nadd 2 check-state\n" +
		"add 3 fwd 192.0.2.1 tcp from any to any 80 in\n" +
		"add 4 fwd 192.0.2.2 ip4 from any to any 2000 out keep-state\n" +
		"add 9 allow ip from any to any keep-state\n",
	"pipe 1 config bw 8Gbit/s queue 10000000Bytes\n" +
		"pipe 2 config bw 8Gbit/s queue 10000000Bytes mask src-ip 0xffffffff\nadd 1 check-state\n" +
		"add 2 pipe 1 udp from any to any 53\nadd 3 pipe 2 tcp from any to any keep-state\n" +
		"add 4 deny udp from any to any 666\nadd 5 allow ip from any to any keep-state\n",
	"add 1 deny ip from any to any not verrevpath in\nadd 2 allow ip from any to any keep-state\n",
}

// change returns something that may happen between two packets.
func (v *pathRun) change() *pathEvent {
	r := v.r
	kind, n := r.IntN(8), r.IntN(16)
	e := &pathEvent{what: fmt.Sprint("change ", kind, " ", n)}
	switch kind {
	case 0, 1:
		e.change = func() { v.setAddresses(n % 7) }
	case 2:
		e.change = func() { v.setPods(n % 5) }
	case 3:
		e.change = func() { v.setTranslations(n) }
	case 4:
		e.change = func() {
			v.must(v.engine.SetNetfilter(n%2 == 0))
			v.must(v.engine.setCookies(uint32(n>>1&1) * cookiesOn)) // no socket listens
		}
	case 5:
		e.change = func() {
			v.must(v.engine.SetQdiscLinks([]uint32{v.a.endpoint.Index}[:n&1]))
			v.must(v.engine.SetStack(n == 7, nil))
			v.must(v.engine.SetRouteMTUs([]RouteMTU{{Dst: netip.MustParsePrefix("192.0.2.0/24"),
				MTU: 1000}}[:n>>1&1]))
		}
	case 6:
		n = r.IntN(len(mixRules))
		e.what += fmt.Sprint(" rules ", n)
		e.change = func() { v.load(n) }
	default:
		var some []rule.TableEntry
		for _, p := range []string{"10.88.0.2/32", "fd00:88::2/128", "192.0.2.0/30",
			"2001:db8::2/128"}[:n%5] {
			some = append(some, rule.TableEntry{Prefix: netip.MustParsePrefix(p)})
		}
		e.change = func() { v.must(v.engine.SetTable("some", some)) }
	}
	return e
}
