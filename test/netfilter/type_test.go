package netfilter

import (
	"testing"

	"github.com/weirnet/weir/internal/nstest"
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
			result := h.importNft(t)
			if _, err := compare(t, h, result, 1, 3000); err != nil {
				t.Errorf("%v\n%s", err, result.Text)
			}
		})
	}
}
