package dns

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/pod"
)

func podOf(key, name string, labels map[string]string, addrs ...string) pod.Pod {
	p := pod.Pod{Key: key, Spec: pod.Spec{Name: name, Labels: labels}}
	for _, a := range addrs {
		p.Addrs = append(p.Addrs, netip.MustParseAddr(a))
	}
	return p
}

func addrsOf(n *Names, name string) string { return addrsFor(n, netip.Addr{}, name) }

func addrsFor(n *Names, asker netip.Addr, name string) string {
	var all []string
	for _, is4 := range []bool{true, false} {
		found, _ := n.lookup(name, asker, is4, 100, 0)
		for _, a := range found {
			all = append(all, a.String())
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestAddressOfAnother: a pod that is forgotten late does not take its address from the pod that
// has it by now, whose questions would be refused.
func TestAddressOfAnother(t *testing.T) {
	var n Names
	old := podOf("1", "old", nil, "10.0.0.2")
	n.Add(old)
	n.Add(podOf("2", "new", nil, "10.0.0.2"))
	n.Remove(old)
	if name, ok := n.owner(netip.MustParseAddr("10.0.0.2")); !ok || name != "new.weir." {
		t.Errorf("the owner is %q, %v", name, ok)
	}
	if got := addrsOf(&n, "old."); got != "" {
		t.Errorf("old: %s", got)
	}
}

func TestNames(t *testing.T) {
	var n Names
	n.Add(podOf("1/eth0", "Web", map[string]string{"app": "web"}, "10.0.0.2", "fd00::2"))
	n.Add(podOf("2/eth0", "shop.db-1", map[string]string{"app": "web", "k8s.io/name": "X"},
		"10.0.0.3"))
	n.Add(podOf("3/eth0", "evil.app.label", map[string]string{"a..b": "c"}, "10.0.0.4"))
	n.Add(podOf("4/eth0", "label", nil, "10.0.0.5"))
	n.Add(podOf("5/eth0", strings.Repeat("x", 64), nil, "10.0.0.6"))
	for name, want := range map[string]string{"web.": "10.0.0.2 fd00::2", "shop.db-1.": "10.0.0.3",
		"web.app.label.": "10.0.0.2 10.0.0.3 fd00::2", "x.k8s.io/name.label.": "10.0.0.3",
		"evil.app.label.": "", "label.": "", "c.a..b.label.": "",
		strings.Repeat("x", 64) + ".": ""} {
		if got := addrsOf(&n, name); got != want {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
	for a, want := range map[string]string{"10.0.0.2": "web.weir.", "fd00::2": "web.weir.",
		"10.0.0.4": "", "10.0.0.9": "none"} {
		name, ok := n.owner(netip.MustParseAddr(a))
		if !ok {
			name = "none"
		}
		if name != want {
			t.Errorf("%s: %q, not %q", a, name, want)
		}
	}
}

// TestNameOfOneLabel: the name of a label leads to the pods with this label alone. Labels of other
// keys get no pod there, whatever their values, and their case, which names do not tell apart.
func TestNameOfOneLabel(t *testing.T) {
	var n Names
	n.Add(podOf("1/eth0", "db", map[string]string{"bank.app": "DB", "app": "web"}, "10.0.0.2"))
	n.Add(podOf("2/eth0", "evil", map[string]string{"app": "db.bank", "App": "web",
		"Bank.app": "db", "bank": "1.0"}, "10.0.0.3"))
	for name, want := range map[string]string{"db.bank.app.label.": "10.0.0.2",
		"web.app.label.": "10.0.0.2", "1.0.bank.label.": ""} {
		if got := addrsOf(&n, name); got != want {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
}

// TestAliases: an alias is known to the containers of its network alone, and to those on several
// networks in the order of their interfaces. It stands for all pods that have it. It comes before
// the pod of that name.
func TestAliases(t *testing.T) {
	var n Names
	come := func(container, ifName, network, addr string, aliases ...string) pod.Pod {
		p := podOf(container+"/"+ifName, container, nil, addr)
		p.Container, p.Network, p.Aliases = container, network, aliases
		n.Add(p)
		return p
	}
	come("shop_web_1", "eth0", "shop", "10.0.0.2", "web", "WEB", "x.app.label", "a..b", "label")
	second := come("shop_web_2", "eth0", "shop", "10.0.0.3", "web")
	come("shop_client", "eth0", "shop", "10.0.0.4")
	come("web", "eth0", "other", "10.0.0.5", "shop_client")
	both := come("both", "eth0", "other", "10.0.0.6")
	come("both", "eth1", "shop", "10.0.0.7")
	come("loose", "eth0", "", "10.0.0.8", "web")
	wants := func(when string, all map[[2]string]string) {
		t.Helper()
		for c, want := range all {
			if got := addrsFor(&n, netip.MustParseAddr(c[0]), c[1]); got != want {
				t.Errorf("%s, %s asks for %s: %q, not %q", when, c[0], c[1], got, want)
			}
		}
	}
	wants("first", map[[2]string]string{
		{"10.0.0.4", "web."}: "10.0.0.2 10.0.0.3", {"10.0.0.5", "web."}: "10.0.0.5",
		{"10.0.0.6", "web."}: "10.0.0.2 10.0.0.3", {"10.0.0.7", "web."}: "10.0.0.2 10.0.0.3",
		{"10.0.0.8", "web."}: "10.0.0.5", {"10.0.0.9", "web."}: "10.0.0.5",
		{"10.0.0.6", "shop_client."}: "10.0.0.5", {"10.0.0.4", "shop_client."}: "10.0.0.4",
		{"10.0.0.4", "shop_web_2."}: "10.0.0.3", {"10.0.0.4", "x.app.label."}: "",
		{"10.0.0.4", "label."}: "", {"10.0.0.4", "a..b."}: ""})
	n.Remove(second)
	n.Remove(both)
	wants("after one is gone", map[[2]string]string{{"10.0.0.4", "web."}: "10.0.0.2",
		{"10.0.0.6", "web."}: "10.0.0.5", {"10.0.0.7", "shop_client."}: "10.0.0.4"})
	for _, key := range slices.Collect(maps.Keys(n.byPod)) {
		n.Remove(pod.Pod{Key: key})
	}
	if len(n.byName)+len(n.byAlias)+len(n.byAddr)+len(n.byContainer) > 0 {
		t.Errorf("left: %v, %v, %v, %v", n.byName, n.byAlias, n.byAddr, n.byContainer)
	}
}

// TestNamesFollowPods: after any order of pods that come, come again and go, names and addresses
// are those of the living.
func TestNamesFollowPods(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var n Names
		living := map[string]pod.Pod{}
		for range 50 {
			i := r.IntN(8)
			key := fmt.Sprint(i)
			if r.IntN(2) == 0 {
				p := podOf(key, "p"+key, map[string]string{"l": fmt.Sprint(r.IntN(2))},
					fmt.Sprintf("10.0.%d.%d", r.IntN(2), i))
				n.Add(p)
				living[key] = p
			} else {
				n.Remove(living[key])
				n.Remove(pod.Pod{Key: key})
				delete(living, key)
			}
			want := map[string][]string{}
			for _, p := range living {
				for _, name := range []string{p.Name + ".", p.Labels["l"] + ".l.label."} {
					want[name] = append(want[name], p.Addrs[0].String())
				}
			}
			if len(n.byName) != len(want) || len(n.byAddr) != len(living) ||
				len(n.byPod) != len(living) {
				t.Fatalf("%v of %v", n.byName, slices.Collect(maps.Keys(living)))
			}
			for name, all := range want {
				slices.Sort(all)
				if got := addrsOf(&n, name); got != strings.Join(all, " ") {
					t.Fatalf("%s: %s, not %v", name, got, all)
				}
			}
		}
	}
}
