package rule

import (
	"strings"
	"testing"

	"github.com/weirnet/weir/rule/op"
)

// TestDenyInIsAnotherRule: a rule whose instance has no deny_in any more keeps none of its states:
// another flow could get the number of their name.
func TestDenyInIsAnotherRule(t *testing.T) {
	keys := map[uint64]string{}
	for _, config := range []string{"", "nat 1 config ip 192.0.2.1\n",
		"nat 1 config ip 192.0.2.1 deny_in\n"} {
		p, err := Compile(ruleset(t, config+"add nat 1 ip from any to any\n"), CompileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r := &p.Rules[0]
		if before, is := keys[r.Key]; is && (r.State != op.StateNone ||
			strings.Contains(before, "deny_in")) {
			t.Errorf("%q and %q are one rule", before, config)
		}
		keys[r.Key] = config
	}
}

// TestRedirectedTwice: what two redirections of the rules have is found before the rules are in
// force, also between instances.
func TestRedirectedTwice(t *testing.T) {
	const named = "add nat 1 ip from any to any\nadd nat 2 ip from any to any\n"
	for _, c := range []struct{ rules, want string }{
		{"nat 1 config ip 192.0.2.1 redirect_port tcp 10.0.0.5:80 80 redirect_port tcp " +
			"10.0.0.6:80 192.0.2.1:80\n", "nat 1: tcp port 80 of 192.0.2.1 is redirected by nat " +
			"1 already"},
		{"nat 1 config if eth0 redirect_port udp 10.0.0.5:1-9 1-9\nnat 2 config if eth0 " +
			"redirect_port udp 10.0.0.6:53 5\n", "nat 2: udp port 5 of interface eth0 is " +
			"redirected by nat 1 already"},
		{"nat 1 config if eth0 redirect_addr 10.0.0.5 192.0.2.7\nnat 2 config if eth0 " +
			"redirect_addr 10.0.0.6 192.0.2.7\n",
			"nat 2: 192.0.2.7 is redirected by nat 1 already"},
		{"nat 1 config if eth0 redirect_port udp 10.0.0.5:53 53\nnat 2 config if eth0 " +
			"redirect_port tcp 10.0.0.5:53 53\n", ""},
		{"nat 1 config if eth0 redirect_port udp 10.0.0.5:53 53\nnat 2 config if eth1 " +
			"redirect_port udp 10.0.0.5:53 53\n", ""},
		{"nat 1 config ip 192.0.2.7 redirect_addr 10.0.0.5 192.0.2.7 redirect_port tcp " +
			"10.0.0.6:80 80\n", ""}, // the port goes before the address
	} {
		_, err := Compile(ruleset(t, c.rules+named), CompileOptions{})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q", c.rules, err, c.want)
		}
	}
}
