package pod

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// reaches wants a container to reach its gateways, and its default routes through eth0.
func (b *fixture) reaches(node *nstest.Node, when string) {
	t := b.t
	t.Helper()
	for _, gw := range b.m.gateways() {
		if err := b.ping(node, gw); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		r, err := node.Netlink().MatchRoute(anywhere(gw), 0)
		if link, _ := node.Netlink().LinkByName("eth0"); err != nil || r.Link != link.Index {
			t.Errorf("%s: the default route is %v, %v", when, r, err)
		}
	}
}

// answersByOwn: each address answers over its own interface, or the fast path would refuse it.
func (b *fixture) answersByOwn(node *nstest.Node) {
	b.t.Helper()
	for _, p := range b.m.List() {
		for _, a := range p.Addrs {
			to := "192.0.2.1"
			if a.Is6() {
				to = "2001:db8::1"
			}
			out, err := node.Command("ip", "route", "get", to, "from", a.String()).Output()
			if err != nil || !strings.Contains(string(out), " dev "+p.IfName+" ") {
				b.t.Errorf("%s of %s answers by %s, %v", a, p.IfName, out, err)
			}
		}
	}
}

// TestSecondInterface: each interface of a container keeps its routes, and routes that another
// program made stay and win, whichever interface comes or goes.
func TestSecondInterface(t *testing.T) {
	b := newFixture(t)
	_, node := b.attach("one", Spec{})
	for range 2 {
		for _, name := range []string{"eth1", "eth2"} {
			if _, _, err := b.try(Spec{Container: "one", Netns: node.Path(),
				IfName: name}); err != nil {
				t.Fatal(err)
			}
		}
		b.reaches(node, "with three interfaces")
		b.answersByOwn(node)
		for _, name := range []string{"eth0", "eth1", "eth2"} {
			if err := b.m.Check("one", name, nil); err != nil {
				t.Errorf("check of %s: %v", name, err)
			}
		}
		for _, name := range []string{"eth1", "eth2"} {
			if err := b.m.Detach(t.Context(), "one", name); err != nil {
				t.Fatal(err)
			}
		}
		b.reaches(node, "with the first alone")
		for _, family := range []string{"-4", "-6"} {
			if out, err := node.Command("ip", family, "rule").Output(); err != nil ||
				strings.Contains(string(out), "10.88.") || strings.Contains(string(out), "fd00:") {
				t.Errorf("rules that stay: %s, %v", out, err)
			}
		}
	}
	b.keepsOtherRoutes()
}

// keepsOtherRoutes: the routes of another program stay as they are, also through an attach that is
// refused.
func (b *fixture) keepsOtherRoutes() {
	t := b.t
	other := b.lab.Node("other")
	b.lab.Join(other, "card", "192.0.2.1/24 2001:db8:1::1/64", b.lab.Node("outside"), "card",
		"192.0.2.2/24 2001:db8:1::2/64")
	other.Route("0.0.0.0/0", "192.0.2.2")
	other.Route("::/0", "2001:db8:1::2")
	before, err := other.Command("ip", "route").Output()
	if err != nil {
		t.Fatal(err)
	}
	b.fast.refuse = errors.New("full")
	if _, _, err := b.try(Spec{Container: "two", Netns: other.Path()}); err == nil {
		t.Error("an attach that is refused succeeded")
	}
	b.fast.refuse = nil
	if _, _, err := b.try(Spec{Container: "two", Netns: other.Path()}); err != nil {
		t.Fatal(err)
	}
	for _, gw := range b.m.gateways() {
		r, err := other.Netlink().MatchRoute(anywhere(gw), 0)
		if card, _ := other.Netlink().LinkByName("card"); err != nil || r.Link != card.Index {
			t.Errorf("another program's default route was replaced by %v, %v", r, err)
		}
	}
	if err := b.m.Detach(t.Context(), "two", ""); err != nil {
		t.Fatal(err)
	}
	if after, err := other.Command("ip", "route").Output(); err != nil ||
		string(after) != string(before) {
		t.Errorf("routes before\n%s\nand after\n%s", before, after)
	}
}

// TestCheckCostsTheSame: what a pod puts into its namespace does not fill the memory of a caller
// that checks it.
func TestCheckCostsTheSame(t *testing.T) {
	b := newFixture(t)
	p, node := b.attach("one", Spec{})
	var batch strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&batch, "route add 10.%d.%d.%d/32 dev eth0\n", 100+i>>16, i>>8&255, i&255)
	}
	for i := range 2000 {
		fmt.Fprintf(&batch, "addr add 10.200.%d.%d/32 dev eth0\n", i>>8, i&255)
	}
	cmd := node.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := b.m.Check("one", "", p.Addrs); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("the check of a pod with 50,000 routes and 2,000 addresses took %d bytes", got)
	}
	if err := b.m.Check("one", "",
		[]netip.Addr{p.Addrs[0], netip.MustParseAddr("fd00:88::77")}); err == nil {
		t.Error("the check does not miss an address that the runtime believes in")
	}
	for _, gone := range []string{"route del default", "-6 route del default", "addr del " +
		p.Addrs[1].String() + "/128 dev eth0"} {
		node.IP(gone)
		if err := b.m.Check("one", "", nil); err == nil {
			t.Errorf("the check does not notice what 'ip %s' deleted", gone)
		}
		undo := strings.NewReplacer("del default", "add default via "+p.Gateway[0].String()+
			" dev eth0", "addr del", "addr add")
		if strings.HasPrefix(gone, "-6") {
			undo = strings.NewReplacer("del default", "add default via "+p.Gateway[1].String()+
				" dev eth0")
		}
		node.IP(undo.Replace(gone))
	}
}
