package rule

import (
	"slices"
	"testing"
)

func TestForgotten(t *testing.T) {
	everything := Host{Neighbours: true, DHCP: true, Loopback: true}
	const ssh = "allow tcp from any to me 22 in setup keep-state\n"
	for _, c := range []struct {
		name, rules string
		host        Host
		want        []Omission
	}{
		{"nothing is allowed", "deny ip from any to any", Host{}, []Omission{NoSSH}},
		{"everything is allowed", "allow ip from any to any", everything, nil},
		{"states", "check-state\n" + ssh + "allow ip from me to any out keep-state", Host{}, nil},
		{"no ssh", "allow tcp from any to me 80 in setup keep-state", Host{}, []Omission{NoSSH}},
		{"ssh from some", "allow tcp from table(admins) to 192.0.2.1 20-25 via eth0 keep-state",
			Host{}, nil},
		{"ssh out only", "allow tcp from me to any 22 out keep-state", Host{}, []Omission{NoSSH}},
		{"ssh is refused before", "deny tcp from any to any 1-1023 in setup\n" + ssh, Host{},
			[]Omission{NoSSH}},
		{"ssh is refused to some before", "deny tcp from 10.0.0.0/8 to any\n" + ssh, Host{}, nil},
		{"only established", "allow tcp from any to any established", Host{},
			[]Omission{NoSSH, NoICMPErrors, NoTooBig}},
		{"without states", "allow tcp from any to any 22\nallow tcp from any to any established",
			Host{}, []Omission{NoICMPErrors, NoTooBig}},
		{"without states, with errors", "allow tcp from any to any\n" +
			"allow icmp from any to any icmptypes 3,11\nallow ipv6-icmp from any to any", Host{},
			nil},
		{"without states, with others", "allow tcp from any to any\n" +
			"allow icmp from any to any icmptypes 8\nallow ipv6-icmp from any to any icmp6types 128",
			Host{}, []Omission{NoICMPErrors, NoTooBig}},
		{"IPv4 without states", "allow tcp from 0.0.0.0/0 to any\nallow udp from any to any keep-state",
			Host{}, []Omission{NoICMPErrors}},
		{"left to the rules", ssh + "allow tcp from me to any 80 out keep-state\n" +
			"allow ip6 from any to any proto udp", everything,
			[]Omission{NoNeighbours, NoDHCP, NoLoopback}},
		{"loopback by states", ssh + "allow ip from me to any out keep-state",
			Host{Loopback: true}, nil},
		{"loopback out only", ssh + "allow ip from me to any out", Host{Loopback: true},
			[]Omission{NoLoopback}},
		{"not left to the rules", ssh + "allow ip from me to any out keep-state", Host{}, nil},
		{"neighbours", ssh + "allow ipv6-icmp from any to any icmp6types 135,136",
			Host{Neighbours: true}, nil},
		{"some neighbours", ssh + "allow ipv6-icmp from any to any icmp6types 135",
			Host{Neighbours: true}, []Omission{NoNeighbours}},
		{"no IPv6", "allow ip4 from any to any keep-state", Host{Neighbours: true}, nil},
		{"DHCP", ssh + "allow udp from any 67,68 to any 67,68", Host{DHCP: true}, nil},
		{"half of DHCP", ssh + "allow udp from any 68 to any 67 out", Host{DHCP: true},
			[]Omission{NoDHCP}},
		{"loopback", ssh + "allow ip from any to any via lo", Host{Loopback: true}, nil},
		{"loopback by pattern", ssh + "allow ip from any to any via l*", Host{Loopback: true}, nil},
		{"another interface", "allow ip from any to any via eth0", Host{Loopback: true},
			[]Omission{NoLoopback}},
		{"loopback by class", ssh + "allow ip from any to any via l[!x]",
			Host{Loopback: true}, nil},
		{"not the loopback", ssh + "allow ip from any to any not via lo", Host{Loopback: true},
			[]Omission{NoLoopback}},
	} {
		set, err := ParseFile("test", c.rules, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, err := Omissions(set, c.host)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	for o := NoSSH; o <= NoLoopback; o++ {
		if o.String() == "" {
			t.Errorf("omission %d has no text", o)
		}
	}
}
