package test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// TestNetkitNode: a node gives pods netkits where its settings say so. The rules hold between pods,
// with the host and with the outside, through a restart and without an agent, and down leaves
// nothing. A kernel without netkit refuses the pod, and says which setting asks for it; pods that
// are there continue.
func TestNetkitNode(t *testing.T) {
	t.Parallel()
	h := newPodHost(t, `
add check-state
add deny icmp from table(app=quiet) to any
add deny ipv6-icmp from table(app=quiet) to any
add allow ip from any to any keep-state
`)
	first, old := h.attach("first")
	h.kill()
	h.file("etc/weir/weir.toml", podSettings+"link = \"netkit\"\n")
	h.start()
	if p := h.pod("first"); p.Link != "veth" || p.Index != old.Index {
		t.Errorf("a pod that was there: %+v", p)
	}
	try := h.lab.Node("try").Netlink().AddNetkit(nl.Veth{Name: "nk", PeerName: "nkp"})
	if errors.Is(try, nl.ErrNoNetkit) {
		h.refusesNetkit(first)
		return
	}
	if try != nil {
		t.Fatal(try)
	}
	second, p := h.attach("second")
	quiet, _ := h.attach("quiet", "--label", "app=quiet")
	if p.Link != "netkit" {
		t.Errorf("the pod has a %q", p.Link)
	}
	for _, n := range []*nstest.Node{first, second, quiet} {
		echoUDP(t, n)
	}
	works := func(when string) {
		t.Helper()
		for _, from := range []*nstest.Node{h.host, h.outside, first, quiet} {
			for _, a := range p.Addrs {
				if err := chat(from, a, 3); err != nil {
					t.Errorf("%s: %s to a pod with a netkit: %v", when, from, err)
				}
			}
		}
		if err := chat(second, old.Addrs[0], 3); err != nil {
			t.Errorf("%s: to a pod with a veth: %v", when, err)
		}
		for _, to := range []string{"10.66.0.2", "fd66::2", "10.88.0.1"} {
			if err := ping(second, to); err != nil {
				t.Errorf("%s: to %s: %v", when, to, err)
			}
			if quiet.Command("ping", "-c1", "-W1", to).Run() == nil {
				t.Errorf("%s: %s answers a pod that the rules refuse", when, to)
			}
		}
	}
	works("at first")
	h.kill()
	works("without an agent")
	h.start()
	works("after a restart")
	h.weir("pod", "detach", "quiet")
	h.downLeavesNothing()
}

// refusesNetkit: on a kernel without netkit the pod is refused, and that which is there continues.
func (h *podHost) refusesNetkit(there *nstest.Node) {
	h.t.Helper()
	_, stderr, err := h.try("pod", "attach", "--name", "second", h.lab.Node("second").Path())
	if err == nil || !strings.Contains(stderr, "no netkit") ||
		!strings.Contains(stderr, `link = "veth" in [pods] of weir.toml`) {
		h.t.Errorf("without netkit: %v\n%s", err, stderr)
	}
	if own := h.ownLinks(); len(own) != 1 {
		h.t.Errorf("after a pod that was refused: %v", own)
	}
	if err := ping(there, "10.66.0.2"); err != nil {
		h.t.Error(err)
	}
}
