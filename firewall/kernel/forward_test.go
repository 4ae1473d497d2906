package kernel

import (
	"net/netip"
	"testing"

	"github.com/weirnet/weir/firewall"
)

func TestEveryForwardingPath(t *testing.T) {
	t.Parallel()
	forwardingPaths(t, newCluster(t, openRules))
}

func forwardingPaths(t *testing.T, v *cluster) {
	v.serve(v.a.Node, 80)
	v.serve(v.b.Node, 80)
	v.serve(v.outside, 80)
	v.serve(v.host, 81)
	for _, w := range []struct {
		what string
		err  error
	}{
		{"pod to pod", reach(v.a.Node, "10.88.0.3:80")},
		{"pod to pod, 6", reach(v.a.Node, "[fd00:88::3]:80")},
		{"outside to pod", reach(v.outside, "10.88.0.2:80")},
		{"outside to pod, 6", reach(v.outside, "[fd00:88::2]:80")},
		{"pod to outside", reach(v.a.Node, "192.0.2.2:80")},
		{"pod to outside, 6", reach(v.a.Node, "[2001:db8::2]:80")},
		{"pod to host", reach(v.a.Node, "10.88.0.1:81")},
		{"pod to host, 6", reach(v.a.Node, "[fd00:88::1]:81")},
		{"pod to the host's NIC", exchange(v.a.Node, "192.0.2.1:81")},
		{"host to pod", reach(v.host, "10.88.0.2:80")},
		{"host to pod, 6", reach(v.host, "[fd00:88::2]:80")},
		{"ping pod to pod", ping(v.a.Node, "10.88.0.3")},
		{"ping pod to pod, 6", ping(v.a.Node, "fd00:88::3")},
		{"ping outside", ping(v.a.Node, "192.0.2.2")},
		{"ping outside, 6", ping(v.a.Node, "2001:db8::2")},
		{"ping from outside", ping(v.outside, "10.88.0.2")},
		{"a large datagram in fragments", ping(v.a.Node, "-s", "4000", "10.88.0.3")},
		{"a large datagram in fragments, 6", ping(v.a.Node, "-s", "4000", "fd00:88::3")},
	} {
		if w.err != nil {
			t.Errorf("%s: %v", w.what, w.err)
		}
	}
	// The stack delivered to a only what the host itself sent to it.
	sent, counted := v.hostSent(v.a), v.counters(v.a)
	if v.netkit {
		sent = 0 // the fast path between pods goes over the host end
	}
	if counted.PacketsIn < sent+30 || counted.PacketsOut < 30 || counted.BytesIn == 0 ||
		counted.BytesOut == 0 {
		t.Errorf("counters %+v, %d by the stack: not the fast path", counted, sent)
	}
	if sent > 40 {
		t.Errorf("the stack sent %d packets to a", sent)
	}
	for _, r := range []firewall.Reason{firewall.ReasonSpoof, firewall.ReasonMartian,
		firewall.ReasonNATPorts} {
		if n := v.drops(r); n != 0 {
			t.Errorf("%d packets dropped: %s", n, r)
		}
	}
	for _, s := range v.states() {
		if s.To == netip.MustParseAddrPort("10.88.0.3:80") && s.Proto == 6 && s.Packets[0]+
			s.Packets[1] > 14 {
			t.Errorf("a packet was counted twice: %+v", s)
		}
	}
}

func (v *cluster) states() (all []firewall.State) {
	v.t.Helper()
	for s, err := range v.engine.States() {
		v.must(err)
		all = append(all, s)
	}
	return all
}
