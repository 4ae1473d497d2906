package enginetest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/rule"
)

// random draws from small sets, so that rules, tables, interfaces and packets meet.
type random struct{ *rand.Rand }

func newRandom(seed uint64) random {
	return random{rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
}

func (g random) one(of ...string) string { return of[g.IntN(len(of))] }

func (g random) chance(percent int) bool { return g.IntN(100) < percent }

// What there is: addresses, ports and interfaces.
var (
	addrs4 = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.1.9", "10.0.1.1", "192.168.0.5",
		"127.0.0.1", "169.254.0.1", "169.254.0.2"}
	odd4   = []string{"255.255.255.255", "224.0.0.5", "0.0.0.0"}
	addrs6 = []string{"2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:1::9", "2001:db8:1::1",
		"fd00::5", "fe80::1", "fe80::2"}
	odd6  = []string{"ff02::1", "::", "ff02::16", "fe80:0:1::2"}
	ports = []string{"22", "53", "80", "443", "1024", "4000", "40000", "40001"}
	nets4 = []string{"10.0.0.0/8", "10.0.0.0/24", "10.0.1.0/24", "10.0.0.2/31", "192.168.0.0/16",
		"0.0.0.0/0", "10.0.0.0/30"}
	nets6 = []string{"2001:db8::/32", "2001:db8::/64", "2001:db8:1::/64", "2001:db8::2/127",
		"fd00::/8", "::/0", "fe80::/10"}
	names  = []string{"lo", "eth0", "eth1", "pod:web"}
	tables = []string{"1", "bad", "app=web"}
)

// addr returns an address of a family; now and then one that belongs to no single host.
func (g random) addr(v6 bool) netip.Addr {
	from, odd := addrs4, odd4
	if v6 {
		from, odd = addrs6, odd6
	}
	if g.chance(3) {
		from = odd
	}
	return netip.MustParseAddr(g.one(from...))
}

// interfaces returns the host's interfaces, now and then without one of them or one of their
// addresses.
func (g random) interfaces() []firewall.Interface {
	own := [][]string{{"127.0.0.1/8", "::1/128"}, {"10.0.0.1/24", "2001:db8::1/64", "fe80::2/64"},
		{"10.0.1.1/24", "2001:db8:1::1/64"}, {"10.0.1.1/16"}}
	local := []string{"10.0.1.8/29", "192.168.0.0/16", "169.254.0.2/32", "2001:db8:1::/112",
		"fd00::/8", "2001:db8::2/128"}
	var ifs []firewall.Interface
	for i, name := range names {
		in := firewall.Interface{Index: uint32(i + 1), Name: name, Router6: i == 2}
		if i == 3 && g.chance(50) {
			in.Index = 300 // beyond any small table
		}
		for _, a := range own[i] {
			if !g.chance(10) {
				in.Addrs = append(in.Addrs, netip.MustParsePrefix(a))
			}
		}
		for i < 2 && g.chance(30) {
			in.Local = append(in.Local, netip.MustParsePrefix(g.one(local...)))
		}
		if !g.chance(10) {
			ifs = append(ifs, in)
		}
	}
	return ifs
}

// routes returns the host's routes, of which some may be to the same prefix.
func (g random) routes() []firewall.Route {
	nets := append(append([]string(nil), nets4...), nets6...)
	var rs []firewall.Route
	for range 2 + g.IntN(6) {
		rs = append(rs, firewall.Route{Dst: netip.MustParsePrefix(g.one(nets...)).Masked(),
			Interface: 1 + g.Uint32N(3), Blackhole: g.chance(15)})
	}
	return rs
}

// entry returns a member of a table.
func (g random) entry() rule.TableEntry {
	p := g.one(append(append([]string(nil), nets4...), nets6...)...)
	if g.chance(50) {
		p = g.addr(g.chance(40)).String()
		if strings.Contains(p, ":") {
			p += "/128"
		} else {
			p += "/32"
		}
	}
	return rule.TableEntry{Prefix: netip.MustParsePrefix(p).Masked(), Value: g.Uint32N(3)}
}

// numbers returns a list of numbers and ranges out of some.
func (g random) numbers(from ...int) string {
	var items []string
	for range 1 + g.IntN(3) {
		a, b := from[g.IntN(len(from))], from[g.IntN(len(from))]
		switch {
		case g.chance(60):
			items = append(items, fmt.Sprint(a))
		default:
			items = append(items, fmt.Sprintf("%d-%d", min(a, b), max(a, b)))
		}
	}
	return strings.Join(items, ",")
}
