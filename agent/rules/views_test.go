package rules

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// mustNotWait obeys lines, which must not wait for what the test is doing.
func mustNotWait(t *testing.T, b *Manager, lines ...string) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		var all error
		for _, l := range lines {
			_, err := b.do(l, false)
			all = errors.Join(all, err)
		}
		done <- all
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("a change waits")
	}
}

// TestListingHoldsNoLock: while the members of tables are written out, rules and members change.
// The listing has what the tables held when it began.
func TestListingHoldsNoLock(t *testing.T) {
	b, _, file := listManager(t, "192.0.2.1\n10.0.0.0/8\n")
	must(t, b, "table web add 10.0.0.2 7 10.0.0.1 8")
	b.followLists()
	putList(t, file, "172.16.0.0/12\n")
	var got []string
	for _, v := range b.Tables(api.TableQuery{}) {
		for e := range v.Members {
			got = append(got, v.Name+" "+e.Prefix)
			mustNotWait(t, b, "table web add 10.0.0.3", "table web delete 10.0.0.1",
				"add 30 count ip from any to any", "delete 30", "table web add 10.0.0.1")
			b.followLists()
		}
	}
	want := []string{"blocked 10.0.0.0/8", "blocked 192.0.2.1/32", "web 10.0.0.1/32",
		"web 10.0.0.2/32"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestTablesOfAQuery: one table, and of an address the longest prefix.
func TestTablesOfAQuery(t *testing.T) {
	b, _, _ := newTimedManager(t)
	must(t, b, "table banned add 10.0.0.0/8 7 10.1.0.0/16 8 timeout 1h",
		"table web add 10.0.0.0/8")
	for _, c := range []struct {
		q    api.TableQuery
		want string
	}{
		{api.TableQuery{}, "banned 2 10.0.0.0/8 10.1.0.0/16, web 1 10.0.0.0/8"},
		{api.TableQuery{NoMembers: true}, "banned 2, web 1"},
		{api.TableQuery{Name: "web"}, "web 1 10.0.0.0/8"},
		{api.TableQuery{Name: "other"}, ""},
		{api.TableQuery{Address: netip.MustParseAddr("10.1.2.3")},
			"banned 2 10.1.0.0/16, web 1 10.0.0.0/8"},
		{api.TableQuery{Name: "banned", Address: netip.MustParseAddr("192.0.2.1")}, "banned 2"},
	} {
		var got []string
		for _, v := range b.Tables(c.q) {
			one := v.Name + " " + string(rune('0'+v.Items))
			for e := range v.Members {
				one += " " + e.Prefix
				if e.Prefix == "10.1.0.0/16" && (e.Value != 8 || e.LeftSeconds == nil ||
					*e.LeftSeconds != 3600) {
					t.Errorf("%+v: %+v", c.q, e)
				}
			}
			got = append(got, one)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%+v: %q, want %q", c.q, got, c.want)
		}
	}
}

// TestWhyHoldsNoLock: while the engine is made that explains a packet, rules and members change. It
// has the rules from before.
func TestWhyHoldsNoLock(t *testing.T) {
	b, _ := newManager(t)
	must(t, b, "table bad add 192.0.2.9", "add 10 deny tcp from table(bad) to any",
		"add 20 allow ip from any to any")
	x := &Explainer{Manager: b, Options: firewall.DefaultOptions(),
		Interfaces: func() []firewall.Interface { return nil },
		Labels: func() map[string][]rule.TableEntry {
			mustNotWait(t, b, "table bad delete 192.0.2.9", "add 5 count ip from any to any")
			return nil
		},
		States: func() iter.Seq2[firewall.State, error] {
			return func(func(firewall.State, error) bool) {}
		}}
	a, err := x.Why(api.Why{Packet: "tcp 192.0.2.9:4000 -> 192.0.2.2:80 flags S"})
	if err != nil || a.Rule != 10 || a.Passed || len(a.Tries) != 1 {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestWhyCountsStates: a limit that the live states have reached drops the packet. States of
// another rule, protocol or source do not count; an IPv6 source counts as its /64.
func TestWhyCountsStates(t *testing.T) {
	b, _ := newManager(t)
	must(t, b, "add 10 allow tcp from any to any 80 limit src-addr 2",
		"add 20 deny log udp from any to any set-limit src-addr dst-port 1 defer-action",
		"add 30 allow ip from any to any")
	_, p := (&Explainer{Manager: b}).inForce()
	state := func(rule int, proto packet.Proto, from, to string) firewall.State {
		return firewall.State{Proto: proto, Key: p.Rules[rule].Key,
			From: netip.MustParseAddrPort(from), To: netip.MustParseAddrPort(to)}
	}
	states := []firewall.State{
		state(0, packet.ProtoTCP, "192.0.2.9:1", "192.0.2.2:80"),
		state(0, packet.ProtoTCP, "192.0.2.9:2", "192.0.2.3:80"),
		state(0, packet.ProtoTCP, "192.0.2.8:1", "192.0.2.2:80"),
		state(2, packet.ProtoTCP, "192.0.2.8:2", "192.0.2.2:80"),
		state(0, packet.ProtoTCP, "[2001:db8::1]:1", "[2001:db8:1::1]:80"),
		state(0, packet.ProtoTCP, "[2001:db8::2]:1", "[2001:db8:1::1]:80"),
		state(1, packet.ProtoUDP, "192.0.2.9:1", "192.0.2.2:53"),
	}
	x := &Explainer{Manager: b, Options: firewall.DefaultOptions(),
		Interfaces: func() []firewall.Interface { return nil },
		Labels:     func() map[string][]rule.TableEntry { return nil },
		States: func() iter.Seq2[firewall.State, error] {
			return func(yield func(firewall.State, error) bool) {
				for _, s := range states {
					if !yield(s, nil) {
						return
					}
				}
			}
		}}
	for packet, want := range map[string]string{
		"tcp 192.0.2.9:9 -> 192.0.2.4:80":               "10 limit, 1 tried",
		"tcp 192.0.2.8:9 -> 192.0.2.4:80":               "10 rule, 1 tried, a state",
		"tcp [2001:db8::3]:9 -> [2001:db8:1::1]:80":     "10 limit, 1 tried",
		"tcp [2001:db8:0:1::3]:9 -> [2001:db8:1::1]:80": "10 rule, 1 tried, a state",
		"udp 192.0.2.9:9 -> 192.0.2.4:53":               "20 limit, 2 tried",
		"udp 192.0.2.9:9 -> 192.0.2.4:54":               "30 rule, 3 tried, a state",
	} {
		a, err := x.Why(api.Why{Packet: packet})
		got := fmt.Sprintf("%d %s, %d tried", a.Rule, a.Reason, len(a.Tries))
		if a.State {
			got += ", a state"
		}
		if err != nil || got != want || a.Passed != (a.Reason == "rule") {
			t.Errorf("%s: %s, passed %v, %v; want %s", packet, got, a.Passed, err, want)
		}
	}
}
