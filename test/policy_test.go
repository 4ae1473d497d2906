package test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

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
		{"rule add pref 100 ipproto 1 to 10.66.0.2 prohibit", "rule delete pref 100"},
	} {
		nstest.Eventually(t, "outside answers before: "+c.add, answers)
		mustRun(t, h.host.Command("ip", strings.Fields(c.add)...))
		nstest.Eventually(t, "outside does not answer: "+c.add, func() bool { return !answers() })
		mustRun(t, h.host.Command("ip", strings.Fields(c.remove)...))
	}
	nstest.Eventually(t, "outside answers again", answers)
}

// TestAnswersMeetPoliciesOfTheHost: a node without pods follows the IPsec policies of its host,
// too. What it refuses gets no answer while one may want that encrypted.
func TestAnswersMeetPoliciesOfTheHost(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", p.file("rules",
		"add reset tcp from any to any 81 in\nadd allow ip from any to any keep-state\n"))
	answers := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c, err := p.client.DialContext(ctx, "tcp", "10.66.0.1:81")
		if err == nil {
			c.Close()
			t.Fatal("port 81 is open")
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	nstest.Eventually(t, "a refused call is answered", answers)
	mustRun(t, p.server.Command("ip", strings.Fields("xfrm policy add src 10.66.0.1/32 dst "+
		"10.66.0.2/32 proto 17 dir out action block")...))
	nstest.Eventually(t, "it is not while there is a policy", func() bool { return !answers() })
	mustRun(t, p.server.Command("ip", "xfrm", "policy", "flush"))
	nstest.Eventually(t, "it is answered again", answers)
}
