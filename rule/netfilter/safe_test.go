package netfilter

import (
	"strings"
	"testing"
)

// TestGotoOfSomeKinds: of known flows, those that a goto does not take come to the next rule. While
// that refuses related packets, no check-state lets them pass.
func TestGotoOfSomeKinds(t *testing.T) {
	for states, all := range map[string]bool{"NEW,ESTABLISHED": false,
		"NEW,ESTABLISHED,RELATED": true} {
		r, err := Import([]Source{{"f", filter(":c1 - [0:0]\n-A OUTPUT -m conntrack --ctstate " +
			states + " -g c1\n-A OUTPUT -j DROP")}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, output, _ := strings.Cut(r.Text, "# From this host.")
		before, _, _ := strings.Cut(output, "deny ip from any to any")
		if strings.Contains(before, "check-state") != all || r.Complete() != all {
			t.Errorf("%s: check-state in front of the rule that drops: want %v\n%s", states, all,
				r.Text)
		}
	}
}

// TestClosedForwarding: where no rule that is carried over lets packets pass through the host,
// those that did and are left out are named.
func TestClosedForwarding(t *testing.T) {
	for rules, want := range map[string]int{
		"-A FORWARD -m physdev --physdev-is-bridged -j ACCEPT":                                  1,
		":c1 - [0:0]\n-A FORWARD -s 10.0.0.0/8 -j c1\n-A c1 -m mark --mark 0x1 -j ACCEPT":       1,
		"-A FORWARD -m mark --mark 0x1 -j DROP":                                                 0,
		"-A FORWARD -m mark --mark 0x1 -j DROP\n-A FORWARD -i eth0 -m owner --uid-owner 0 -g c": 1,
	} {
		r, err := Import([]Source{{"f", filter(rules)}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		left := 0
		for _, m := range r.Remarks {
			if m.Left {
				left++
			}
		}
		if left != want {
			t.Errorf("%s: %d rules are named, want %d: %+v", rules, left, want, r.Remarks)
		}
	}
}
