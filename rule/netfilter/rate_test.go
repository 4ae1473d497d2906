package netfilter

import (
	"strings"
	"testing"
)

// TestRatesLeftOut: a rate that would not count here what it counts there is left out, with the
// words that it would have.
func TestRatesLeftOut(t *testing.T) {
	const known = "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"
	const rate = "-p icmp --icmp-type 8 -m limit --limit 2/sec -j ACCEPT\n"
	for name, rules := range map[string]string{
		"known flows come to it": "-A INPUT " + rate + known,
		"known flows come to its chain": ":X - [0:0]\n-A INPUT -p icmp -j X\n" + known +
			"-A INPUT -p udp -j X\n-A X " + rate,
		"a chain of two hooks": ":X - [0:0]\n" + known + "-A INPUT -p icmp -j X\n" +
			"-A FORWARD -j X\n-A X " + rate,
		"several rules": known + "-A INPUT -p tcp --dport 22 -m limit --limit 2/sec -j ACCEPT",
		"not the last condition": known +
			"-A INPUT -p icmp -m limit --limit 2/sec -m ttl --ttl-eq 1 -j ACCEPT",
		"by chance": known + "-A INPUT -p icmp -m limit --limit 2/sec -m statistic " +
			"--mode random --probability 0.5 -j ACCEPT",
	} {
		r, err := Import([]Source{{"f", filter(rules)}}, Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		found := 0
		for _, m := range r.Remarks {
			if m.Left && strings.Contains(m.Why, "`limit-rate 2/s burst 5 exceed next`") {
				found++
			}
		}
		for _, x := range r.Rules.Rules {
			if x.Rate.N != 0 {
				t.Errorf("%s: %s", name, x.Text())
			}
		}
		if found != 1 {
			t.Errorf("%s: %d remarks in\n%s", name, found, r.Text)
		}
	}
}
