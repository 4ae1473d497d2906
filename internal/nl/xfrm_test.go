package nl_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// TestForwardPolicies lists the policies that forwarded packets may meet, and no others.
func TestForwardPolicies(t *testing.T) {
	n := nstest.New(t).Node("n")
	for _, c := range []struct{ args, want string }{
		{"policy add src 10.0.0.0/8 dst 192.0.2.1/32 dir in action block", ""},
		{"policy add src 10.0.0.0/8 dst 192.0.2.1/32 proto tcp dport 80 dir out",
			"10.0.0.0/8 192.0.2.1/32"},
		{"policy add src fd00::/8 dst ::/0 dir fwd action block", "fd00::/8 ::/0"},
		{"policy setdefault fwd block", "0.0.0.0/0 0.0.0.0/0, ::/0 ::/0"},
		{"policy setdefault fwd accept", ""},
		{"policy setdefault out block", "0.0.0.0/0 0.0.0.0/0, ::/0 ::/0"},
	} {
		n.IP("xfrm policy flush")
		n.IP("xfrm " + c.args)
		var got []string
		err := n.Do(func() error {
			all, err := nl.ForwardPolicies()
			for _, p := range all {
				got = append(got, p.Src.String()+" "+p.Dst.String())
			}
			return err
		})
		if err != nil || strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %v, %v; want %s", c.args, got, err, c.want)
		}
	}
}

// TestPoliciesInOrder: the policies are in the order in which the kernel asks them, with all that
// they compare. Those of xfrm interfaces are none, nor those that let only some pass in the clear.
func TestPoliciesInOrder(t *testing.T) {
	n := nstest.New(t).Node("n")
	a := "src 10.0.0.0/8 dst 192.0.2.1/32 "
	for _, args := range []string{
		a + "proto udp sport 4789 dport 4789 dir out priority 7 mark 0x30 mask 0xf0 " +
			"tmpl proto esp mode transport",
		a + "proto icmp type 8 code 0 dir fwd priority 6 action block",
		a + "dir out priority 5",
		"src fd00::/8 dst ::/0 dir out priority 5 action block",
		a + "dir out priority 1 if_id 4 action block",
		a + "dev lo dir out priority 2",
		a + "dev lo dir out priority 3 action block mark 9",
	} {
		n.IP("xfrm policy add " + args)
	}
	n.IP("xfrm policy setdefault fwd block")
	prefix := netip.MustParsePrefix
	four, six := prefix("10.0.0.0/8"), prefix("fd00::/8")
	to, any4, any6 := prefix("192.0.2.1/32"), prefix("0.0.0.0/0"), prefix("::/0")
	want := []nl.Policy{
		{Src: four, Dst: to, Protects: true, Mark: 9, MarkMask: 0xffffffff},
		{Src: six, Dst: any6, Protects: true},
		{Src: four, Dst: to},
		{Src: four, Dst: to, Forward: true, Protects: true, Proto: 1, Ports: 8 << 16,
			PortsMask: 0xffffffff},
		{Src: four, Dst: to, Protects: true, Proto: 17, Ports: 4789<<16 | 4789,
			PortsMask: 0xffffffff, Mark: 0x30, MarkMask: 0xf0},
		{Src: any4, Dst: any4, Forward: true, Protects: true},
		{Src: any6, Dst: any6, Forward: true, Protects: true},
	}
	var got []nl.Policy
	err := n.Do(func() (err error) {
		got, err = nl.ForwardPolicies()
		return err
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// TestPacketRules lists the rules that depend on more than addresses.
func TestPacketRules(t *testing.T) {
	n := nstest.New(t).Node("n")
	for _, c := range []struct {
		rule string
		want bool
	}{
		{"-4 rule add pref 7 from 10.0.0.0/8 to 192.0.2.0/24 iif lo lookup 9", false},
		{"-4 rule add pref 7 tos 0x10 lookup 9", false},
		{"-4 rule add pref 7 uidrange 0-10 lookup 9", false},
		{"-4 rule add pref 7 lookup main suppress_prefixlength 0", false},
		{"-4 rule add pref 7 dport 80 lookup 9", true},
		{"-4 rule add pref 7 sport 80-90 lookup 9", true},
		{"-4 rule add pref 7 ipproto udp prohibit", true},
		{"-4 rule add pref 7 fwmark 0/4 lookup 9", true},
		{"-4 rule add pref 7 not fwmark 9 lookup 9", true},
		{"-4 rule add pref 7 tun_id 4 lookup 9", true},
		{"-6 rule add pref 7 from fd00::/8 lookup 9", false},
		{"-6 rule add pref 7 tos 0x10 lookup 9", true},
		{"-6 rule add pref 7 fwmark 9 lookup 9", true},
	} {
		n.IP(c.rule)
		var got []nl.PacketRule
		err := n.Do(func() (err error) {
			got, err = nl.PacketRules()
			return err
		})
		if err != nil || len(got) > 1 || (len(got) == 1) != c.want ||
			c.want && got[0].Priority != 7 {
			t.Errorf("%s: %+v, %v", c.rule, got, err)
		}
		n.IP(c.rule[:2] + " rule delete pref 7")
	}
}

// TestPoliciesAndRulesAreFollowed: each change is reported.
func TestPoliciesAndRulesAreFollowed(t *testing.T) {
	n := nstest.New(t).Node("n")
	for _, c := range []struct {
		watch   func(context.Context, func()) error
		changes []string
	}{
		{nl.WatchPolicies, []string{"xfrm policy add src 10.0.0.0/8 dst 10.0.0.0/8 dir fwd",
			"xfrm policy flush", "xfrm policy setdefault fwd block"}},
		{nl.WatchRules, []string{"-4 rule add dport 80 lookup 9", "-6 rule add dport 80 lookup 9",
			"-4 rule delete dport 80"}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		changed, ended := make(chan struct{}, 100), make(chan error, 1)
		go func() {
			ended <- n.Do(func() error {
				return c.watch(ctx, func() { changed <- struct{}{} })
			})
		}()
		await := func(what string) {
			t.Helper()
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("not reported: %s", what)
			}
		}
		await("the beginning")
		for _, change := range c.changes {
			n.IP(change)
			await(change)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(fmt.Errorf("ended with %w", err))
		}
	}
}
