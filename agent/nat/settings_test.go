package nat

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// apply reads elements of [[forward]], each "LISTEN PROTO TO".
func apply(lines ...string) (s Settings, err error) {
	var all []ForwardFile
	for _, line := range lines {
		f := strings.Split(line, " ")
		all = append(all, ForwardFile{Listen: f[0], Proto: f[1], To: f[2]})
	}
	return s, s.Apply(all, nil, nil)
}

func TestForwardsRead(t *testing.T) {
	s, err := apply("203.0.113.7:443 tcp 10.0.5.9:8443", ":53 udp 10.0.5.9:53",
		"[2001:db8::7]:8000-8002  [fd00:5::9]:9000-9002", ":3868 sctp [fd00:5::9]:3868")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range s.Forwards {
		for _, p := range f.Ports() {
			got = append(got, fmt.Sprintf("%s %s %s", p.Proto, p.Host, p.Pod))
		}
	}
	want := []string{"tcp 203.0.113.7:443 10.0.5.9:8443", "udp 0.0.0.0:53 10.0.5.9:53",
		"tcp [2001:db8::7]:8000 [fd00:5::9]:9000", "tcp [2001:db8::7]:8001 [fd00:5::9]:9001",
		"tcp [2001:db8::7]:8002 [fd00:5::9]:9002", "sctp [::]:3868 [fd00:5::9]:3868"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if err := s.Check([]netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}, 51820); err != nil {
		t.Error(err)
	}
}

func TestForwardsRefused(t *testing.T) {
	const fine = "203.0.113.7:443 tcp 10.0.5.9:443"
	for _, c := range []struct{ line, want string }{
		{"203.0.113.7 tcp 10.0.5.9:443",
			`[[forward]] 2: listen: "203.0.113.7" is not an address and`},
		{"203.0.113.7:0 tcp 10.0.5.9:443", "[[forward]] 2: listen: "},
		{"203.0.113.7:65536 tcp 10.0.5.9:443", "[[forward]] 2: listen: "},
		{"203.0.113.7:20-10 tcp 10.0.5.9:20-10", "[[forward]] 2: "},
		{"2001:db8::7:443 tcp [fd00::9]:443", "[[forward]] 2: listen: "},
		{"[203.0.113.7]:443 tcp 10.0.5.9:443", "[[forward]] 2: listen: "},
		{"[fe80::1%eth0]:443 tcp [fd00::9]:443", "[[forward]] 2: listen: "},
		{"[::ffff:203.0.113.7]:443 tcp 10.0.5.9:443", "[[forward]] 2: listen: "},
		{"127.0.0.1:443 tcp 10.0.5.9:443", "listen: 127.0.0.1 is not an address that other hosts"},
		{"224.0.0.5:443 tcp 10.0.5.9:443", "listen: 224.0.0.5 is not an address"},
		{"[fe80::1]:443 tcp [fd00::9]:443", "listen: fe80::1 is not an address"},
		{":80 tcp :80", `to: ":80" has no address`},
		{":80 tcp 0.0.0.0:80", "to: 0.0.0.0 is not an address of another host"},
		{":80 tcp 127.0.0.1:80", "to: 127.0.0.1 is not an address of another host"},
		{":80 tcp [fe80::9]:80", "to: fe80::9 is not an address of another host"},
		{":80 tcp [ff02::9]:80", "to: ff02::9 is not an address of another host"},
		{":80 tcp web:80", `to: "web:80" is not an address`},
		{"203.0.113.7:80 tcp [fd00::9]:80",
			"203.0.113.7 and fd00::9 are of different address families"},
		{"203.0.113.7:80 tcp 203.0.113.7:81", "listen and to have the same address"},
		{":80-89 tcp 10.0.5.9:80", "10 public ports, but 1 target ports"},
		{":80 sctp 10.0.5.9:81", "an SCTP port keeps its number, 80"},
		{":80 icmp 10.0.5.9:80", `proto: "icmp" is not "tcp", "udp" or "sctp"`},
		{":80 TCP 10.0.5.9:80", `proto: "TCP" is not`},
		{"203.0.113.7:440-450 tcp 10.0.5.9:440-450", "[[forward]] 2: listen: tcp port 443 of " +
			"203.0.113.7 is forwarded by [[forward]] 1 already"},
		{":1-40000 tcp 10.0.5.9:1-40000", "40001 ports are too many; at most 32768 in all"},
	} {
		_, err := apply(fine, c.line)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q", c.line, err, c.want)
		}
	}
	for _, line := range []string{"203.0.113.7:443 udp 10.0.5.9:443", ":443 tcp 10.0.5.9:443",
		"203.0.113.7:442 tcp 10.0.5.9:443", "203.0.113.7:65535 tcp 10.0.5.9:65535"} {
		if _, err := apply(fine, line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestForwardsChecked(t *testing.T) {
	s, err := apply(":51800-51830 udp 10.0.5.9:51800-51830", ":80 tcp 10.88.0.9:80")
	if err != nil {
		t.Fatal(err)
	}
	pods := []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}
	if err := s.Check(pods, 0); err == nil ||
		!strings.Contains(err.Error(), "[[forward]] 2: to: 10.88.0.9 is in pods.ranges") {
		t.Errorf("a pod: %v", err)
	}
	if err := s.Check(nil, 51820); err == nil ||
		!strings.Contains(err.Error(), "[[forward]] 1: listen: udp port 51820 is that of the") {
		t.Errorf("the tunnel's port: %v", err)
	}
	if err := s.Check(nil, 51831); err != nil {
		t.Error(err)
	}
}

// TestApply: the settings reach the engine whole, an empty list too, which takes back what an
// earlier agent has left; nothing does when one of them cannot work.
func TestApply(t *testing.T) {
	s, err := apply(":443 tcp 10.0.5.9:443", ":53 udp [fd00::9]:53")
	if err != nil {
		t.Fatal(err)
	}
	calls, ports, router := 0, 0, [2]bool{}
	c := Config{Problems: &problem.List{Log: slog.New(slog.DiscardHandler)},
		SetForwards: func(all []forward.Published) error { calls++; ports = len(all); return nil },
		SetForwarding: func(four, six bool) error {
			router = [2]bool{four, six}
			return nil
		},
		SetMasquerade: func() error { return nil },
		IsMe:          func(netip.Addr) bool { return false }}
	if err := New(c).Apply(); err != nil || calls != 1 || ports != 0 || router != [2]bool{} {
		t.Errorf("no settings: %v, %d calls, %d ports, %v", err, calls, ports, router)
	}
	c.Settings = s
	if err := New(c).Apply(); err != nil || ports != 2 || router != [2]bool{true, true} {
		t.Errorf("two ports: %v, %d ports, %v", err, ports, router)
	}
	if n := New(c).Count(); n != 2 {
		t.Errorf("%d ports", n)
	}
	if err := New(c).CheckTunnelPort(53); err == nil {
		t.Error("a tunnel at a forwarded port")
	}
	if v := New(c).Forwards(); len(v) != 2 || v[0].Proto != packet.ProtoTCP || v[1].Ports != 1 {
		t.Errorf("shown as %+v", v)
	}
}

func masquerades(lines ...string) (s Settings, err error) {
	var all []MasqueradeFile
	for _, line := range lines {
		source, to, _ := strings.Cut(line, " ")
		all = append(all, MasqueradeFile{Source: source, To: to})
	}
	return s, s.Apply(nil, all, nil)
}

func TestMasqueradesRead(t *testing.T) {
	s, err := masquerades("10.0.5.0/24 203.0.113.9", "10.0.5.10/32 203.0.113.8", "fd00:5::/64")
	if err != nil {
		t.Fatal(err)
	}
	s.Forwards = []Forward{{To: netip.MustParseAddrPort("10.0.6.9:80"), Count: 1}}
	free := func(netip.Addr) bool { return false }
	others, near := New(Config{Settings: s, IsMe: free}).SourceNATs()
	m := forward.Masquerade{Others: others, Near: near}
	for _, c := range []struct{ prefix, to string }{
		{"10.0.5.10/32", "203.0.113.8"}, {"10.0.5.11/32", "203.0.113.9"},
		{"10.0.5.0/25", "203.0.113.9"}, {"10.0.4.0/23", "none"}, {"fd00:5::1/128", "invalid IP"},
		{"10.0.6.9/32", "none"},
	} {
		got := "none"
		if to, ok := m.Behind(netip.MustParsePrefix(c.prefix)); ok {
			got = to.To.String()
		}
		if got != c.to {
			t.Errorf("%s as %s, not %s", c.prefix, got, c.to)
		}
	}
	if len(near) != 4 || near[3].String() != "10.0.6.9/32" {
		t.Errorf("near: %v", near)
	}
	if v := New(Config{Settings: s}).Masquerades(); len(v) != 3 || v[0].To != "203.0.113.9" ||
		v[2].To != "" {
		t.Errorf("shown as %+v", v)
	}
}

func TestMasqueradesRefused(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"10.0.5.9", `[[masquerade]] 2: source: "10.0.5.9" is not a network; write "10.0.5.0/24"`},
		{"10.0.5.9/24", "[[masquerade]] 2: source: 10.0.5.9/24 is an address in 10.0.5.0/24"},
		{"0.0.0.0/0", "[[masquerade]] 2: source: 0.0.0.0/0 is everything"},
		{"::/0 2001:db8::1", "[[masquerade]] 2: source: ::/0 is everything"},
		{"127.0.0.0/8", "[[masquerade]] 2: source: no packets are routed from 127.0.0.0/8"},
		{"fe80::/64", "[[masquerade]] 2: source: no packets are routed from fe80::/64"},
		{"10.1.0.0/16 eth0", `[[masquerade]] 2: to: "eth0" is not an address`},
		{"10.1.0.0/16 2001:db8::1",
			"[[masquerade]] 2: 10.1.0.0/16 and 2001:db8::1 are of different address families"},
		{"10.1.0.0/16 0.0.0.0", "[[masquerade]] 2: to: 0.0.0.0 is not an address that other hosts"},
		{"10.0.5.0/24 203.0.113.9",
			"[[masquerade]] 2: source: 10.0.5.0/24 is that of [[masquerade]] 1"},
	} {
		_, err := masquerades("10.0.5.0/24", c.line)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q", c.line, err, c.want)
		}
	}
	s, err := masquerades("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check([]netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}, 0); err == nil ||
		!strings.Contains(err.Error(), "[[masquerade]] 1: source: 10.0.0.0/8 has addresses of") {
		t.Errorf("a pod's range: %v", err)
	}
}
