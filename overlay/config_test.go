package overlay

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// TestEndpointsHaveAPort: an endpoint that lacks its port is refused, by name of the peer, with
// what to write in its place.
func TestEndpointsHaveAPort(t *testing.T) {
	p := Peer{Name: "b", Key: Key{1}, Pods: []netip.Prefix{netip.MustParsePrefix("10.88.2.0/24")}}
	for _, c := range []struct{ endpoint, says, hint string }{
		{"host.example", `peer "b": endpoint "host.example" has no port`,
			"host.example:51820"},
		{"192.0.2.7", `endpoint "192.0.2.7" has no port`, "192.0.2.7:51820"},
		{"2001:db8::7", `endpoint "2001:db8::7" has no port`, "[2001:db8::7]:51820"},
		{"[2001:db8::7]", `endpoint "[2001:db8::7]" has no port`, "[2001:db8::7]:51820"},
		{"2001:db8::7:51820", "has an IPv6 address without brackets", "[2001:db8::7]:51820"},
		{"2001:db8::7:80", `endpoint "2001:db8::7:80" has no port`, "[2001:db8::7:80]:51820"},
		{"host.example:", "needs a host and a port from 1 to 65535", "host.example:51820"},
		{"host.example:0", "needs a host and a port from 1 to 65535", "host.example:51820"},
		{"host.example:wg", "needs a host and a port from 1 to 65535", "host.example:51820"},
		{":51820", "needs a host and a port from 1 to 65535", "HOST:51820"},
		{"[]:51820", "needs a host and a port from 1 to 65535", "HOST:51820"},
		{"", `endpoint "" has no port`, "HOST:51820"},
		{"a:b:c", `endpoint "a:b:c" is not HOST:PORT`, "HOST:51820"},
		{"[2001:db8::7", `endpoint "[2001:db8::7" is not HOST:PORT`, "HOST:51820"},
	} {
		p.Endpoints = []string{"192.0.2.1:51820", c.endpoint}
		err := p.check()
		var h interface{ Hint() string }
		if !errors.As(err, &h) || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(h.Hint(), "write "+c.hint) {
			t.Errorf("%q: %v\n want %s\n hint: %s", c.endpoint, err, c.says, c.hint)
		}
	}
	for _, good := range []string{"host.example:1", "192.0.2.7:65535", "[2001:db8::7]:51820",
		"[fe80::1%eth0]:51820"} {
		if p.Endpoints = []string{good}; p.check() != nil {
			t.Errorf("%q: %v", good, p.check())
		}
	}
}

// TestRangesOfPeers: no packet between hosts has an address of the loopback or an IPv4-mapped one.
func TestRangesOfPeers(t *testing.T) {
	for text, want := range map[string]string{
		"10.88.2.0/24":        "",
		"10.88.2.1/24":        "has host bits set; write 10.88.2.0/24",
		"127.0.0.0/8":         "127.0.0.0/8 has addresses that no packet to another host has",
		"::1/128":             "::1/128 has addresses that no packet to another host has",
		"::ffff:10.0.0.0/120": "has addresses that no packet to another host has",
	} {
		p := Peer{Name: "b", Key: Key{1}, Pods: []netip.Prefix{netip.MustParsePrefix(text)}}
		if err := p.check(); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
