package setup

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/offline"
	"github.com/weirnet/weir/agent/rulefile"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var (
	ssh = &api.Session{From: netip.MustParseAddrPort("192.0.2.7:40000"),
		To: netip.MustParseAddrPort("10.66.0.1:22")}
	eth0 = Interface{Name: "eth0", Guarded: true, Networks: []netip.Prefix{
		netip.MustParsePrefix("10.66.0.1/24"), netip.MustParsePrefix("fd66::1/64"),
		netip.MustParsePrefix("10.66.0.9/32")}}
	lo = Interface{Name: "lo", Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}}
)

func service(proto, address string, port uint16, program string) Listener {
	return Listener{Proto: proto, Address: netip.MustParseAddr(address), Port: port,
		Program: program}
}

func both(proto string, port uint16, program string) Listener {
	s := service(proto, "::", port, program)
	s.Both = true
	return s
}

// hosts are the cases; each has a golden file of its name.
var hosts = map[string]Facts{
	"bare": {},
	"web": {Session: ssh, Interfaces: []Interface{lo, eth0}, FirstLocalPort: 32768,
		Services: []Listener{both("tcp", 22, "sshd"), service("tcp", "0.0.0.0", 80, "nginx"),
			service("tcp", "::", 80, "nginx"), both("tcp", 443, "nginx"),
			service("tcp", "10.66.0.1", 443, "nginx"), service("tcp", "127.0.0.1", 8125, "agent"),
			service("tcp", "::1", 8125, "agent"), both("tcp", 5432, "postgres"),
			service("udp", "0.0.0.0", 68, "dhclient"), service("udp", "::", 546, "dhclient"),
			service("udp", "0.0.0.0", 51820, ""), service("udp", "0.0.0.0", 5353, "avahi-daemon"),
			service("udp", "10.66.0.1", 53, "un\nbound\x1b[2J"),
			service("tcp", "::", 8443, "six"), both("sctp", 3868, "diameter")}},
	"docker": {Session: &api.Session{From: netip.MustParseAddrPort("[2001:db8::7]:5"),
		To: netip.MustParseAddrPort("[2001:db8::1]:2222")}, Forwards: true,
		Interfaces: []Interface{eth0, {Name: "docker0", Maker: "Docker"},
			{Name: "virbr0", Maker: "libvirt"}, {Name: "veth1", Maker: "a container"}},
		Services:  []Listener{both("tcp", 8080, "docker-proxy")},
		Firewalls: []string{"nftables with table ip nat", "ufw"}},
	"lan": {Interfaces: []Interface{lo, eth0}, FirstLocalPort: 32768,
		Services: []Listener{service("udp", "0.0.0.0", 67, "dnsmasq"),
			both("udp", 547, "dnsmasq"), service("udp", "0.0.0.0", 137, "nmbd"),
			service("udp", "10.66.0.1", 53, "dnsmasq")}},
	"peer": {Interfaces: []Interface{lo, eth0}, FirstLocalPort: 32768, TunnelPort: 51820,
		Services: []Listener{both("udp", 51820, "weir"), both("udp", 51821, "chrome")}},
	"router": {Forwards: true, Interfaces: []Interface{eth0, {Name: "eth1", Guarded: true}}},
	"bridge": {Interfaces: []Interface{{Name: "eth0", Guarded: true, Bridge: "br0", Guests: true},
		{Name: "br0", Guarded: true}}},
}

// TestRulesOfHosts: the text for each host is as it was read and approved, and Weir accepts it.
func TestRulesOfHosts(t *testing.T) {
	for name, facts := range hosts {
		path, text := filepath.Join("testdata", name+".rules"), Rules(facts)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || text != string(want) {
			t.Errorf("%s: %v, got\n%s", name, err, text)
		}
		if _, err := rulefile.Check(path, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNamesThatRulesDoNotHave: a port of a bridge whose name is a comment, a pattern, a list, a
// word of rules or an address has no rule, and the file says so. The other ports have theirs.
func TestNamesThatRulesDoNotHave(t *testing.T) {
	for _, name := range []string{"eth#1", "eth*", "e[0-9]", "any", "10.0.0.1", "a,b", "{",
		"a\"b", "$HOME", "//", "e\x1b[2J", "\xff"} {
		text := Rules(Facts{Interfaces: []Interface{
			{Name: name, Guarded: true, Bridge: "br0", Guests: true},
			{Name: "eth0.5@x", Guarded: true, Bridge: "br0", Guests: true}}})
		if _, err := rulefile.Check("rules", text); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if strings.Count(text, "\nadd 30") != 1 || !strings.Contains(text, "via eth0.5@x\n") ||
			!strings.Contains(text, "# NOT ALLOWED: ") {
			t.Errorf("%q:\n%s", name, text)
		}
	}
}

// TestRulesDecide asks the rules of a host about packets.
func TestRulesDecide(t *testing.T) {
	me := eth0.Networks
	web, bridge := Rules(hosts["web"]), Rules(hosts["bridge"])
	lan, peer := Rules(hosts["lan"]), Rules(hosts["peer"])
	for _, tc := range []struct {
		text, packet string
		pass         bool
	}{
		{web, "in via eth0 tcp 192.0.2.7:4000 -> 10.66.0.1:22", true},
		{web, "in via eth0 tcp [2001:db8::7]:4000 -> [fd66::1]:22", true},
		{web, "in via eth0 tcp 192.0.2.7:4000 -> 10.66.0.1:80", true},
		{web, "in via eth0 tcp 192.0.2.7:4000 -> 10.66.0.1:8125", false},
		{web, "in via eth0 tcp 192.0.2.7:4000 -> 10.66.0.1:5432", false},
		{web, "in via eth0 tcp 10.66.0.7:4000 -> 10.66.0.1:5432", true},
		{web, "in via eth0 tcp [fd66::7]:4000 -> [fd66::1]:5432", true},
		{web, "in via eth0 tcp [fd66::7]:4000 -> [fd66::1]:8443", true},
		{web, "in via eth0 udp 10.66.0.7:5353 -> 224.0.0.251:5353", true},
		{web, "in via eth0 udp 192.0.2.7:5353 -> 224.0.0.251:5353", false},
		{web, "in via eth0 udp 192.0.2.7:4000 -> 10.66.0.1:40000", false},
		{web, "in via eth0 icmp 192.0.2.7 -> 10.66.0.1 type 8", true},
		{web, "out via eth0 tcp 10.66.0.1:4000 -> 192.0.2.7:443", true},
		{web, "in via eth0 tcp 192.0.2.7:4000 -> 10.77.0.1:22", false},
		{lan, "in via eth0 udp 0.0.0.0:68 -> 255.255.255.255:67", true},
		{lan, "in via eth0 udp [fe80::7]:546 -> [ff02::1:2]:547", true},
		{lan, "in via eth0 udp 10.66.0.7:137 -> 10.66.0.255:137", true},
		{lan, "in via eth0 udp 192.0.2.7:137 -> 10.66.0.255:137", false},
		{lan, "in via eth0 udp 10.66.0.7:4000 -> 10.66.0.255:53", false},
		{peer, "in via eth0 udp 192.0.2.7:51820 -> 10.66.0.1:51820", true},
		{peer, "in via eth0 udp 192.0.2.7:51820 -> 10.66.0.1:51821", false},
		{bridge, "in via eth0 tcp 192.0.2.7:4000 -> 10.66.0.55:22", true},
		{bridge, "in via eth0 tcp 192.0.2.7:4000 -> 10.66.0.1:22", false},
	} {
		e, err := offline.Why("rules", tc.text, me, tc.packet)
		if err != nil || e.Passed != tc.pass {
			t.Errorf("%s: %v by rule %d %s, %v", tc.packet, e.Passed, e.Rule, e.Text, err)
		}
	}
}
