package netfilter

import (
	"testing"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/rule/netfilter"
)

// TestTypeLocal: to netfilter, what local routes lead to is of the type local, and what the host
// has as a router is not; packets to either meet the input chains.
func TestTypeLocal(t *testing.T) {
	nstest.RequireRoot(t)
	for _, rule := range []string{"fib daddr type local accept", "fib daddr type != local accept",
		"fib saddr type != local meta l4proto udp accept"} {
		t.Run(rule, func(t *testing.T) {
			h := newHost(t)
			h.input(t, `table inet filter {
	chain input {
		type filter hook input priority 0; policy drop
		`+rule+`
	}
}
`, "nft", "-f", "-")
			text, err := h.node.Command("nft", "-j", "list", "table", "inet", "filter").Output()
			if err != nil {
				t.Fatal(err)
			}
			result, err := netfilter.Import([]netfilter.Source{{Name: "nft", Text: string(text)}},
				ofHost())
			if err != nil || !result.Complete() {
				t.Fatalf("%v, %+v", err, result)
			}
			if _, err := compare(t, h, result, 1, 3000); err != nil {
				t.Errorf("%v\n%s", err, result.Text)
			}
		})
	}
}
