package test

import (
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestPodsMeetPoliciesOfTheHost: a node has packets of pods meet IPsec policies and routing rules
// that the host gets while it runs, until it has none.
func TestPodsMeetPoliciesOfTheHost(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	h := newPodHost(t, "add allow ip from any to any keep-state\n")
	pod, _ := h.attach("web")
	answers := func() bool {
		return pod.Command("ping", "-c1", "-W1", "10.66.0.2").Run() == nil
	}
	for _, c := range []struct{ add, remove string }{
		{"xfrm policy add src 10.88.0.0/24 dst 10.66.0.2/32 dir out action block",
			"xfrm policy flush"},
		{"rule add pref 100 ipproto icmp to 10.66.0.2 prohibit", "rule delete pref 100"},
	} {
		nstest.Eventually(t, "outside answers before: "+c.add, answers)
		mustRun(t, h.host.Command("ip", strings.Fields(c.add)...))
		nstest.Eventually(t, "outside does not answer: "+c.add, func() bool { return !answers() })
		mustRun(t, h.host.Command("ip", strings.Fields(c.remove)...))
	}
	nstest.Eventually(t, "outside answers again", answers)
}
