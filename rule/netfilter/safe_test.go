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
