package kernel

import (
	"cmp"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
)

// adoptPrevious gives an engine states as a previous layout kept them: no key holds a link or a
// query.
func adoptPrevious(t *testing.T, e *Engine) {
	t.Helper()
	words := func(s string) (hi, lo uint64) { return packet.AddrWords(netip.MustParseAddr(s)) }
	made := e.now()
	for _, s := range []struct {
		proto      packet.Proto
		low, high  string
		ports      uint32
		originator int
	}{
		// the host's own address is on two links
		{packet.ProtoTCP, "fe80::1", "fe80::2", 80<<16 | 1000, 1},
		{packet.ProtoUDP, "2001:db8::1", "fe80::9", 53<<16 | 53, 0},          // on one
		{packet.ProtoUDP, "fe80::7", "fe80::8", 53<<16 | 53, 0},              // on none
		{packet.ProtoUDP, "169.254.1.1", "169.254.1.2", 7<<16 | 53, 0},       // on one
		{packet.ProtoUDP, "10.0.0.1", "169.254.169.254", 7<<16 | 53, 0},      // as it is
		{packet.ProtoICMP, "10.0.0.1", "10.0.0.2", 500<<16 | 500, 0},         // the low end asks
		{packet.ProtoICMP, "10.0.0.1", "10.0.0.3", 65535<<16 | 65535, 1},     // the high end asks
		{packet.ProtoICMPv6, "2001:db8::1", "2001:db8::2", 500<<16 | 500, 1}, // the high end asks
		{packet.ProtoICMPv6, "2001:db8::1", "2001:db8::3", 0, 0},             // no query
		{packet.ProtoICMP, "2001:db8::1", "2001:db8::2", 0, 0},               // no ICMP
	} {
		c := weirCall{Op: opAdopt}
		c.Key.LowHi, c.Key.LowLo = words(s.low)
		c.Key.HighHi, c.Key.HighLo = words(s.high)
		c.Key.Ports, c.Key.Proto = s.ports, uint8(s.proto)
		for i := range c.Side {
			c.Side[i] = weirSide{Last: made, Created: made, Rule: e.rules[0].Id,
				Flags: uint32(flow.SideSeen) | metaLoose}
		}
		c.Side[s.originator].Flags |= metaMade
		if err := e.call.ask(&c); err != nil || c.Result != adoptMade {
			t.Fatalf("%+v: %d: %v", s, c.Result, err)
		}
	}
}

// keyedState is what names a state.
type keyedState struct {
	from, to string
	proto    packet.Proto
	query    uint8
	link     uint32
}

func (a keyedState) compare(b keyedState) int {
	return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to),
		cmp.Compare(a.link, b.link), cmp.Compare(a.proto, b.proto))
}

// keyedStates returns the states of an engine in the order of their keys.
func keyedStates(t *testing.T, e *Engine) (all []keyedState) {
	t.Helper()
	for s, err := range e.States() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, keyedState{s.From.String(), s.To.String(), s.Proto, s.Query, s.Link})
	}
	slices.SortFunc(all, keyedState.compare)
	return all
}

// TestKeysOfPreviousLayouts migrates the states of a layout whose keys held neither links nor
// queries: each is found by what it was made for, and by nothing else.
func TestKeysOfPreviousLayouts(t *testing.T) {
	nstest.RequireRoot(t)
	dir := filepath.Join(nstest.Bpffs(t), "weir")
	const rules = "add 10 allow ip from any to any keep-state\n"
	o := firewall.DefaultOptions()
	o.Timeouts.UDPReply, o.Timeouts.Short = time.Hour, time.Hour
	open := func() *Engine {
		e, err := openShared(t, Config{Dir: dir, Options: o})
		if err != nil {
			t.Fatalf("%+v", err)
		}
		return e
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	old := open()
	must(old.Load(compile(t, rules)))
	adoptPrevious(t, old)
	old.config.Layout = firstLinks - 1
	must(old.objects.Config.Put(uint32(0), &old.config))
	must(old.Close())
	must(asLabels(layoutDir(dir)))
	must(os.Rename(layoutDir(dir), filepath.Join(dir, "layout-12")))

	e := open()
	defer func() {
		if err := errors.Join(e.Close(), Remove(dir)); err != nil {
			t.Error(err)
		}
	}()
	must(e.SetInterfaces([]firewall.Interface{
		{Index: 2, Name: "eth0", Addrs: prefixes("fe80::1/64", "2001:db8::1/64", "169.254.1.1/16",
			"10.0.0.1/24")},
		{Index: 3, Name: "vlan1", Addrs: prefixes("fe80::1/64")},
		{Index: 4, Name: "vlan2", Addrs: prefixes("fe80::4/64")},
	}))
	must(e.Load(compile(t, rules)))
	want := []keyedState{
		{"[fe80::2]:1000", "[fe80::1]:80", 6, 0, 2}, {"[fe80::2]:1000", "[fe80::1]:80", 6, 0, 3},
		{"[2001:db8::1]:53", "[fe80::9]:53", 17, 0, 2},
		{"169.254.1.1:7", "169.254.1.2:53", 17, 0, 2},
		{"10.0.0.1:7", "169.254.169.254:53", 17, 0, 0}, {"10.0.0.1:500", "10.0.0.2:500", 1, 8, 0},
		{"10.0.0.3:65535", "10.0.0.1:65535", 1, 8, 0},
		{"[2001:db8::2]:500", "[2001:db8::1]:500", 58, 128, 0},
		{"[2001:db8::1]:0", "[2001:db8::2]:0", 1, 0, 0},
	}
	slices.SortFunc(want, keyedState.compare)
	if got := keyedStates(t, e); !slices.Equal(got, want) {
		t.Errorf("states\n%+v, want\n%+v", got, want)
	}
}

func prefixes(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}
