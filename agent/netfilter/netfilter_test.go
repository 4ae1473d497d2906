package netfilter

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

// docker are the rules of dockerd 20.10 for a container with a published port.
const docker = `*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A POSTROUTING -s 172.17.0.2/32 -d 172.17.0.2/32 -p tcp -m tcp --dport 80 -j MASQUERADE
-A DOCKER -i docker0 -j RETURN
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
COMMIT
`

// kubeProxy are rules of kube-proxy for a service without the node's own part.
const kubeProxy = `*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-TCOU7JCQXEZGVUNU - [0:0]
:KUBE-SEP-XYZ - [0:0]
:KUBE-POSTROUTING - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE
-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m udp --dport 53 -j KUBE-SVC-TCOU7JCQXEZGVUNU
-A KUBE-SVC-TCOU7JCQXEZGVUNU -j KUBE-SEP-XYZ
-A KUBE-SEP-XYZ -p udp -m udp -j DNAT --to-destination 10.88.0.3:53
COMMIT
`

const libvirt = `*nat
:POSTROUTING ACCEPT [0:0]
:LIBVIRT_PRT - [0:0]
-A POSTROUTING -j LIBVIRT_PRT
-A LIBVIRT_PRT -s 192.168.122.0/24 -d 224.0.0.0/24 -j RETURN
-A LIBVIRT_PRT -s 192.168.122.0/24 ! -d 192.168.122.0/24 -p tcp -j MASQUERADE --to-ports 1024-65535
COMMIT
`

// nat are a table of nft with one rule in each chain.
func nat(pre, post string) string {
	return "table inet nat {\nchain inner {\nip daddr 10.200.0.10 dnat ip to 10.88.0.3\n}\n" +
		"chain pre {\ntype nat hook prerouting priority dstnat\n" + pre + "\n}\n" +
		"chain post {\ntype nat hook postrouting priority srcnat\n" + post + "\n}\n}\n"
}

// legacy are the tools that write the same rules into nftables and into ip_tables.
var restores = []string{"iptables-nft-restore", "iptables-legacy-restore"}

func TestTranslates(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	for _, c := range []struct {
		name       string
		iptables   string
		nft        string
		masquerade bool // by the node itself
		want       bool
	}{
		{name: "nothing"},
		{name: "docker", iptables: docker},
		{name: "libvirt", iptables: libvirt},
		{name: "docker and own", iptables: docker, nft: nat("", "oifname eth0 masquerade"),
			want: true},
		{name: "kube-proxy", iptables: kubeProxy, want: true},
		{name: "kube-proxy, masquerade", iptables: kubeProxy, masquerade: true, want: true},
		{name: "no rules", nft: nat("", "")},
		{name: "masquerade", nft: nat("", "oifname eth0 masquerade"), want: true},
		{name: "masquerade of both", nft: nat("", "oifname eth0 masquerade"), masquerade: true},
		{name: "masquerade of pods", nft: nat("", "ip saddr 10.88.0.0/16 masquerade"), want: true},
		{name: "masquerade of pods, IPv6", nft: nat("", "ip6 saddr fd00:88::/64 masquerade"),
			want: true},
		{name: "masquerade of others", nft: nat("", "ip saddr 172.17.0.0/16 masquerade")},
		{name: "masquerade of others, IPv6", nft: nat("", "ip6 saddr fd00:17::/64 masquerade")},
		{name: "masquerade of a part of others", nft: nat("", "ip saddr 172.17.4.0/23 masquerade")},
		{name: "masquerade at another interface", nft: nat("", "oifname docker0 masquerade")},
		{name: "masquerade at what begins alike", nft: nat("", `oifname "docker*" masquerade`),
			want: true},
		{name: "masquerade of who calls pods", nft: nat("", "ip saddr 203.0.113.0/24 masquerade"),
			want: true},
		{name: "source address", nft: nat("", "ip saddr 10.88.0.2 snat ip to 192.0.2.7"),
			masquerade: true, want: true},
		{name: "port of the host", nft: nat("ip daddr 192.0.2.1 tcp dport 80 dnat ip to 10.88.0.3",
			"")},
		{name: "local port", nft: nat("fib daddr type local tcp dport 80 dnat ip to 10.88.0.3",
			"")},
		{name: "other address", nft: nat("ip daddr 192.0.2.9 tcp dport 80 dnat ip to 10.88.0.3",
			""), want: true},
		{name: "not the host's", nft: nat("fib daddr type != local dnat ip to 10.88.0.3", ""),
			want: true},
		{name: "redirect", nft: nat("udp dport 53 redirect to :5353", ""), want: true},
		{name: "jump", nft: nat("meta l4proto tcp jump inner", ""), want: true},
		{name: "jump for others", nft: nat("iifname docker0 jump inner", "")},
		{name: "map", nft: nat("ip daddr . tcp dport vmap { 10.200.0.10 . 80 : goto inner }", ""),
			want: true},
		{name: "set", nft: nat("ip daddr { 10.200.0.10, 10.200.0.11 } dnat ip to 10.88.0.3", ""),
			want: true},
	} {
		tools := restores
		if c.iptables == "" {
			tools = tools[:1]
		}
		for _, tool := range tools {
			host := nstest.New(t).Node("host")
			load(t, host, c.iptables, tool)
			load(t, host, c.nft, "nft", "-f", "-")
			var found string
			err := host.Do(func() (err error) {
				found, err = translates(scope(c.masquerade))
				return
			})
			if err != nil || found != "" != c.want {
				t.Errorf("%s, %s: %q, %v", c.name, tool, found, err)
			}
		}
	}
}

// load gives rules to a tool in a namespace.
func load(t *testing.T, n *nstest.Node, rules string, tool ...string) {
	t.Helper()
	if rules == "" {
		return
	}
	cmd := n.Command(tool[0], tool[1:]...)
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s\n%s", tool, err, out, rules)
	}
}

// scope is that of a host with Docker and libvirt beside Weir.
func scope(masquerade bool) Scope {
	face := func(index uint32, name, addrs string) firewall.Interface {
		i := firewall.Interface{Index: index, Name: name}
		for a := range strings.FieldsSeq(addrs) {
			i.Addrs = append(i.Addrs, netip.MustParsePrefix(a))
		}
		return i
	}
	return Scope{Masquerade: masquerade,
		Pods: []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24"),
			netip.MustParsePrefix("fd00:88::/64")},
		Interfaces: []firewall.Interface{face(1, "lo", "127.0.0.1/8"),
			face(2, "eth0", "192.0.2.1/24 2001:db8::1/64"),
			face(3, "docker0", "172.17.0.1/16 fd00:17::1/64"),
			face(4, "virbr0", "192.168.122.1/24")},
		Guards: func(name string) bool { return name == "eth0" }}
}

// engine records what a watcher tells.
type engine struct{ calls []bool }

func (e *engine) SetNetfilter(on bool) error { e.calls = append(e.calls, on); return nil }

// A watcher looks again when rules of nft come and go, and only then.
func TestWatcher(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	host := nstest.New(t).Node("host")
	e := &engine{}
	w := Watcher{Engine: e, Scope: func() Scope {
		return scope(false)
	}, Log: slog.New(slog.DiscardHandler)}
	look := func(want ...bool) {
		t.Helper()
		if err := host.Do(func() error { return w.Refresh(false) }); err != nil {
			t.Fatal(err)
		}
		if len(e.calls) != len(want) || len(want) > 0 && e.calls[len(want)-1] != want[len(want)-1] {
			t.Errorf("the engine got %v, not %v", e.calls, want)
		}
	}
	look(false)
	look(false)
	load(t, host, nat("", "oifname eth0 masquerade"), "nft", "-f", "-")
	look(false, true)
	look(false, true)
	load(t, host, "flush ruleset", "nft", "-f", "-")
	look(false, true, false)
}
