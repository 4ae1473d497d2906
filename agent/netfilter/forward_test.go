package netfilter

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// dockerFilter are dockerd's rules for what is forwarded; in front of them stands what an
// administrator puts into DOCKER-USER.
func dockerFilter(user string) string {
	return `*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A FORWARD -i docker0 -o docker0 -j ACCEPT
-A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
-A DOCKER-ISOLATION-STAGE-2 -j RETURN
` + user + `-A DOCKER-USER -j RETURN
COMMIT
`
}

// forwarding is a table of nft with a chain at the hook forward.
func forwarding(family, policy, rules string) string {
	return "table " + family + " f {\nchain others {\nct state established accept\n}\n" +
		"chain pods {\naccept\n}\nchain forward {\ntype filter hook forward priority filter\n" +
		"policy " + policy + "\n" + rules + "\n}\n}\n"
}

func TestDropped(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	const sent, sent6 = "what pods of 10.88.0.0/24 send", "what pods of fd00:88::/64 send"
	const got = "what goes to pods of 10.88.0.0/24"
	for _, c := range []struct{ name, iptables, nft, want string }{
		{name: "nothing"},
		{name: "docker", iptables: dockerFilter(""), want: sent},
		{name: "docker, from pods", want: got,
			iptables: dockerFilter("-A DOCKER-USER -i weir+ -j ACCEPT\n")},
		{name: "docker, both", iptables: dockerFilter(
			"-A DOCKER-USER -i weir+ -j ACCEPT\n-A DOCKER-USER -o weir+ -j ACCEPT\n")},
		{name: "docker, by address", iptables: dockerFilter("-A DOCKER-USER -s 10.88.0.0/16 -m " +
			"comment --comment pods -j ACCEPT\n-A DOCKER-USER -d 10.88.0.0/16 -j ACCEPT\n")},
		{name: "docker, one of them", want: sent,
			iptables: dockerFilter("-A DOCKER-USER -s 10.88.0.2/32 -j ACCEPT\n")},
		{name: "docker, all", iptables: dockerFilter("-A DOCKER-USER -j ACCEPT\n")},
		{name: "policy accept", nft: forwarding("inet", "accept", "")},
		{name: "policy drop", nft: forwarding("inet", "drop", ""), want: sent},
		{name: "policy drop, IPv6", nft: forwarding("ip6", "drop", ""), want: sent6},
		{name: "answers alone", want: sent,
			nft: forwarding("inet", "drop", "ct state established,related accept")},
		{name: "answers, and what pods send",
			nft: forwarding("inet", "drop",
				"ct state vmap { established : accept, related : accept }\niifname \"weir*\" accept")},
		{name: "one protocol", want: sent,
			nft: forwarding("inet", "drop", "iifname \"weir*\" tcp dport 80 accept")},
		{name: "another interface", want: sent,
			nft: forwarding("inet", "drop", "iifname eth0 accept")},
		{name: "to one interface", want: sent,
			nft: forwarding("inet", "drop", "iifname \"weir*\" oifname eth1 accept")},
		{name: "by address", nft: forwarding("inet", "drop",
			"ip saddr 10.88.0.0/24 accept\nip daddr 10.88.0.0/24 accept\n"+
				"ip6 saddr fd00:88::/48 accept\nip6 daddr fd00:88::/48 accept")},
		{name: "by address, one family", want: sent6, nft: forwarding("inet", "drop",
			"ip saddr 10.88.0.0/24 accept\nip daddr 10.88.0.0/24 accept")},
		{name: "jump", nft: forwarding("inet", "drop",
			"jump others\niifname \"weir*\" jump pods\noifname \"weir*\" jump pods")},
		{name: "reject at the end", want: sent,
			nft: forwarding("inet", "accept", "ct state established accept\nreject")},
		{name: "drop of others", nft: forwarding("inet", "accept", "iifname docker0 drop")},
		{name: "drop of some", nft: forwarding("inet", "accept", "tcp dport 25 drop")},
		{name: "another chain drops", want: sent, nft: forwarding("inet", "accept", "accept") +
			forwarding("ip", "drop", "")},
	} {
		for _, restore := range restores {
			if c.iptables == "" && restore != restores[0] {
				continue
			}
			host := nstest.New(t).Node("host")
			load(t, host, c.iptables, restore)
			load(t, host, c.nft, "nft", "-f", "-")
			var what, where string
			err := host.Do(func() (err error) {
				s := scope(false)
				what, where, err = s.Dropped()
				return
			})
			if err != nil || what != c.want || (where != "") != (c.want != "") {
				t.Errorf("%s, %s: %q by %q, %v; want %q", c.name, restore, what, where, err, c.want)
			}
		}
	}
}

// TestDroppedByLegacy: what iptables-legacy has that dockerd's rules have not: protocols, negated
// tests, other targets, IPv6.
func TestDroppedByLegacy(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	const sent, sent6 = "what pods of 10.88.0.0/24 send", "what pods of fd00:88::/64 send"
	for _, c := range []struct{ rules, restore, want string }{
		{"-A FORWARD -p tcp -j ACCEPT\n", "iptables", sent},
		{"-A FORWARD ! -i docker0 -j ACCEPT\n", "iptables", sent},
		{"-A FORWARD ! -s 10.0.0.0/8 -j ACCEPT\n", "iptables", sent},
		{"-A FORWARD -f -j ACCEPT\n", "iptables", sent},
		{"-A FORWARD -j LOG\n-A FORWARD -j REJECT\n-A FORWARD -j ACCEPT\n", "iptables", sent},
		{"-A FORWARD -j ACCEPT\n-A FORWARD -j DROP\n", "iptables", ""},
		{"-A FORWARD -i weir+ -j ACCEPT\n-A FORWARD -o weir+ -j ACCEPT\n", "iptables", ""},
		{"", "ip6tables", sent6},
		{"-A FORWARD -p tcp -j ACCEPT\n", "ip6tables", sent6},
		{"-A FORWARD -s fd00:88::/64 -j ACCEPT\n-A FORWARD -d fd00:88::/64 -j ACCEPT\n", "ip6tables",
			""},
	} {
		host := nstest.New(t).Node("host")
		load(t, host, "*filter\n:FORWARD DROP [0:0]\n"+c.rules+"COMMIT\n",
			c.restore+"-legacy-restore")
		var what, where string
		err := host.Do(func() (err error) {
			s := scope(false)
			what, where, err = s.Dropped()
			return
		})
		if err != nil || what != c.want || strings.Contains(where, "legacy") != (c.want != "") {
			t.Errorf("%s: %q by %q, %v; want %q", c.rules, what, where, err, c.want)
		}
	}
}

// TestDroppedIsAWarning: where flows begin in the stack, or all packets go through it, and
// netfilter drops them there, a watcher warns, as long as both is so.
func TestDroppedIsAWarning(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	host := nstest.New(t).Node("host")
	stack := ""
	w := Watcher{Engine: &engine{}, Scope: func() Scope { return scope(false) },
		Log: slog.New(slog.DiscardHandler), Stack: func() string { return stack }}
	expect := func(when, want string) {
		t.Helper()
		if err := host.Do(func() error { return w.Refresh(false) }); err != nil {
			t.Fatal(err)
		}
		all := strings.Join(w.Warnings(), "\n")
		if (all != "") != (want != "") || !strings.Contains(all, want) {
			t.Errorf("%s: %q, want %q", when, all, want)
		}
	}
	expect("nothing", "")
	load(t, host, forwarding("inet", "drop", ""), "nft", "-f", "-")
	expect("flows do not begin in the stack", "")
	load(t, host, nat("", "oifname eth0 masquerade"), "nft", "-f", "-")
	expect("they do", "table f chain forward of netfilter drops what pods of 10.88.0.0/24 send")
	load(t, host, "flush table inet nat", "nft", "-f", "-")
	expect("they do not any more", "")
	stack = "an IPsec policy"
	if err := host.Do(func() error { return w.Refresh(true) }); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(w.Warnings(), "\n")
	if !strings.Contains(all, "since the host has an IPsec policy") {
		t.Errorf("all packets go through the stack: %q", all)
	}
}
