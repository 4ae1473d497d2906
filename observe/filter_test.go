package observe

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// TestFilterIsTheRuleLanguage: a filter picks a packet's event exactly when the reference model
// says that a rule with the same condition matches the packet.
func TestFilterIsTheRuleLanguage(t *testing.T) {
	g := newRandom(t)
	picked := 0
	for range 1000 {
		body := g.condition()
		f, err := ParseFilter(body, nil)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		set, err := rule.ParseFile("f", "add 100 count "+body+"\ntable web create\n", nil)
		if err != nil {
			t.Fatal(err)
		}
		set.Rules[0].Action.Op = op.ActionDeny
		p, err := rule.Compile(set, rule.CompileOptions{Default: op.ActionAllow})
		if err != nil {
			t.Fatal(err)
		}
		model := enginetest.NewModel(firewall.DefaultOptions())
		model.Load(set, rule.CompileOptions{Default: op.ActionAllow}, enginetest.Keys(p))
		model.SetTable("web", []rule.TableEntry{{Prefix: netip.MustParsePrefix("10.0.0.0/31"),
			Value: 5}, {Prefix: netip.MustParsePrefix("fd00::2/128")}})
		ifs := []firewall.Interface{{Index: 1, Name: "eth0",
			Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24"),
				netip.MustParsePrefix("fd00::1/64")}}, {Index: 2, Name: "eth1"}}
		model.SetInterfaces(ifs)
		for range 20 {
			e := g.packetEvent()
			v := model.Evaluate(&firewall.Input{Hook: e.Hook}, g.bytes(t, &e))
			if want := v.Rule == 100; f.Match(&e, modelNames(ifs)) != want {
				t.Fatalf("%q picks %s: %v, but the model says %+v", body, e.Text(), !want, v)
			} else if want {
				picked++
			}
		}
	}
	if picked < 1000 {
		t.Errorf("only %d events were picked: the conditions are too narrow",
			picked)
	}
}

// modelNames has the tables and addresses of the model.
func modelNames(ifs []firewall.Interface) *Names {
	has := func(i firewall.Interface, a netip.Addr) bool {
		for _, p := range i.Addrs {
			if p.Addr() == a {
				return true
			}
		}
		return false
	}
	return &Names{
		Table: func(name string, a netip.Addr) (uint32, bool) {
			if netip.MustParsePrefix("10.0.0.0/31").Contains(a) {
				return 5, name == "web"
			}
			return 0, name == "web" && a == netip.MustParseAddr("fd00::2")
		},
		Me: func(a netip.Addr) bool { return has(ifs[0], a) },
		InterfaceHas: func(name string, a netip.Addr) bool {
			return name == "eth0" && has(ifs[0], a)
		},
	}
}

func (g random) condition() string {
	var b strings.Builder
	if g.IntN(3) > 0 {
		fmt.Fprintf(&b, "%s from %s to %s",
			pick(g, "ip", "ip", "tcp", "udp", "ip4", "ip6", "{ tcp or udp }", "not tcp",
				"icmp"), g.end(), g.end())
	}
	for g.IntN(2) == 0 || b.Len() == 0 {
		b.WriteString(pick(g, "", " ", " not ")) // a second blank is allowed
		b.WriteString(" " + pick(g, "in", "out", "via eth0", "recv eth*", "xmit eth1", "via any",
			"setup", "established", "tcpflags syn,!ack",
			"src-ip 10.0.0.0/24", "dst-port 80,443", "src-port 1-1023", "proto udp", "dst-ip me",
			"src-ip table(web,5)", "iplen 0-600", "recv 10.0.0.2"))
	}
	return strings.TrimSpace(b.String())
}

func (g random) end() string {
	e := pick(g, "any", "any", "any", "10.0.0.0/24", "10.0.0.1", "not 10.0.0.1", "me", "me6",
		"table(web)", "table(web,5)", "{ 10.0.0.1 or fd00::2 }", "fd00::/64")
	if g.IntN(4) == 0 {
		e += " " + pick(g, "80", "22,53,4000-5000", "not 80")
	}
	return e
}

// packetEvent draws an event of a packet that can be built.
func (g random) packetEvent() Event {
	e := g.event()
	e.Kind, e.Lost = firewall.EventDrop, 0
	e.Proto = pick[packet.Proto](g, packet.ProtoTCP, packet.ProtoTCP, packet.ProtoUDP,
		packet.ProtoSCTP,
		packet.ProtoICMP)
	if e.Src.Addr().Is6() && e.Proto == packet.ProtoICMP {
		e.Proto = packet.ProtoUDP
	}
	e.TCPFlags = 0
	if e.Proto == packet.ProtoTCP {
		e.TCPFlags = pick(g, packet.FlagSYN, packet.FlagACK, packet.FlagSYN|packet.FlagACK,
			packet.FlagRST)
	}
	names := []string{"", "eth0", "eth1"}
	recv, xmit := g.IntN(3), g.IntN(3)
	if e.Hook.Dir == firewall.In {
		xmit = 0
	}
	e.Hook.Recv, e.Hook.Xmit = uint32(recv), uint32(xmit)
	e.Recv, e.Xmit = names[recv], names[xmit]
	return e
}

// bytes makes the packet of an event, and sets the event's length.
func (g random) bytes(t *testing.T, e *Event) []byte {
	var ip build.Layer = build.IPv4{Src: e.Src.Addr(), Dst: e.Dst.Addr(), TTL: 64}
	if e.Src.Addr().Is6() {
		ip = build.IPv6{Src: e.Src.Addr(), Dst: e.Dst.Addr(), HopLimit: 64}
	}
	var l4 build.Layer = build.TCP{SrcPort: e.Src.Port(), DstPort: e.Dst.Port(),
		Flags: e.TCPFlags}
	switch e.Proto {
	case packet.ProtoUDP:
		l4 = build.UDP{SrcPort: e.Src.Port(), DstPort: e.Dst.Port()}
	case packet.ProtoSCTP:
		l4 = build.SCTP{SrcPort: e.Src.Port(), DstPort: e.Dst.Port()}
	case packet.ProtoICMP:
		l4 = build.ICMP{Type: 8, Rest: uint32(e.Src.Port()) << 16}
	}
	b, err := build.Packet(ip, l4, build.Data(make([]byte, g.IntN(1000))))
	if err != nil {
		t.Fatal(err)
	}
	e.Length = uint32(len(b))
	return b
}

func TestFilterWords(t *testing.T) {
	drop := Event{}
	drop.Event = firewall.Event{Kind: firewall.EventDrop, Proto: packet.ProtoTCP,
		Src: netip.MustParseAddrPort("10.0.0.1:4000"),
		Dst: netip.MustParseAddrPort("10.0.1.9:80"), Verdict: firewall.Verdict{Rule: 150,
			Reason: firewall.ReasonTCPWindow}}
	drop.Recv = "eth0"
	refuse, start, gap := drop, drop, Event{Lost: 3}
	refuse.Kind, start.Kind = firewall.EventRefuse, firewall.EventStart
	names := &Names{Table: func(name string, a netip.Addr) (uint32, bool) {
		return 0, name == "app=web" && a == drop.Src.Addr()
	}}
	for text, want := range map[string]string{
		"":                                     "drop refuse start gap",
		"deny":                                 "drop refuse gap",
		"drop tcp":                             "drop refuse gap",
		"refuse":                               "refuse gap",
		"start":                                "start gap",
		"allow udp":                            "gap",
		"start deny":                           "drop refuse start gap",
		"deny tcp from table(app=web)":         "drop refuse gap",
		"deny tcp from table(app=db)":          "gap",
		"tcp to any 80":                        "drop refuse start gap",
		"tcp to any 81":                        "gap",
		"from 10.0.0.1":                        "drop refuse start gap",
		"to 10.0.0.1":                          "gap",
		"from 10.0.0.1 in via eth0":            "drop refuse start gap",
		"tcp from 10.0.0.1 4000 via eth1":      "gap",
		"udp or":                               "error",
		"rule 100-200":                         "drop refuse start gap",
		"rule 151":                             "gap",
		"rule 151 rule 150":                    "drop refuse start gap",
		"drop reason tcp-window from 10.0.0.1": "drop refuse gap",
		"reason limit":                         "gap",
		"in via eth0":                          "drop refuse start gap",
		"not src-ip 10.0.0.1":                  "gap",
		"{ tcp or udp } to any 80":             "drop refuse start gap",
		"reason nonsense":                      "error",
		"rule x":                               "error",
		"rule":                                 "error",
		"ip from any to any ipttl 5":           "error",
		"ip from any to any keep-state":        "error",
		"tcp frm any":                          "error",
	} {
		f, err := ParseFilter(text, nil)
		if err != nil {
			if want != "error" {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		got := ""
		for _, c := range []struct {
			name string
			e    *Event
		}{{"drop", &drop}, {"refuse", &refuse}, {"start", &start}, {"gap", &gap}} {
			if f.Match(c.e, names) {
				got += " " + c.name
			}
		}
		if got = strings.TrimSpace(got); got != want {
			t.Errorf("%q picks %q, want %q", text, got, want)
		}
	}
}

// TestFilterErrorIsAboutTheFilter: the place of a mistake is one in the filter as it was typed, and
// no other word is shown.
func TestFilterErrorIsAboutTheFilter(t *testing.T) {
	for text, want := range map[string]string{
		"foo": "column 1: unknown option \"foo\"\n" +
			"    foo\n" +
			"    ^^^\n",
		"deny  tcp bogus": "column 10: expected \"from\", found \"bogus\"\n" +
			"    deny tcp bogus\n" +
			"             ^^^^^\n" +
			"    hint: PROTO from ADDRESS [PORT] to ADDRESS [PORT]\n",
		"from 10.0.0.0/99":          "column 15: prefix length",
		"reason limit to":           "column 16: address is missing\n",
		"to 10.0.0.1 from 10.0.0.x": "column 1: ",
		"rule 1-9 tcp from":         "column 18: address is missing\n",
		"in recv":                   "column 8: interface is missing\n",
	} {
		_, err := ParseFilter(text, nil)
		var e *rule.Error
		if !errors.As(err, &e) {
			t.Errorf("%q: error %v", text, err)
			continue
		}
		if got := e.Report(); !strings.HasPrefix(got, want) || strings.Contains(got, "count") {
			t.Errorf("%q:\n%swant\n%s", text, got, want)
		}
	}
}
