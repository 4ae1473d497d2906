package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// setPolicies replaces the IPsec policies of the host by ones that require ESP. There is no SA, so
// the kernel sends and takes nothing that they match.
func (v *cluster) setPolicies(direction string, all ...Policy) {
	v.t.Helper()
	v.host.IP("xfrm policy flush")
	for i, p := range all {
		all[i].Forward = direction == "fwd"
		v.host.IP(fmt.Sprintf("xfrm policy add src %s dst %s dir %s tmpl src %s dst %s proto esp "+
			"mode tunnel", p.Src, p.Dst, direction, p.Src.Addr(), p.Dst.Addr()))
	}
	v.must(v.engine.SetStack(false, all))
}

func policy(src, dst string) Policy {
	return Policy{Src: netip.MustParsePrefix(src), Dst: netip.MustParsePrefix(dst), Protects: true}
}

// flows are open UDP sockets to addresses that have answered.
func (v *cluster) flows(from *nstest.Node, to []string) (all []net.Conn) {
	v.t.Helper()
	for _, a := range to {
		v.must(talkLong(from, a))
		c, err := from.DialContext(v.t.Context(), "udp", a)
		v.must(err)
		v.t.Cleanup(func() { c.Close() })
		v.must(echoWord(c, "before"))
		all = append(all, c)
	}
	return all
}

// closed reports the addresses that answer, in a flow that was open or over a new connection.
func closed(from *nstest.Node, to []string, open []net.Conn) error {
	answers := make(chan error, 2*len(to))
	for i, a := range to {
		go func() {
			if echoWordFor(open[i], "after", shortWait) == nil {
				answers <- fmt.Errorf("udp %s answers", a)
				return
			}
			answers <- nil
		}()
		go func() {
			if tryExchange(from, a) == nil {
				answers <- fmt.Errorf("tcp %s answers", a)
				return
			}
			answers <- nil
		}()
	}
	var errs []error
	for range cap(answers) {
		errs = append(errs, <-answers)
	}
	return errors.Join(errs...)
}

// fast checks that packets go past the stack.
func (v *cluster) fast(from *nstest.Node, to string) {
	v.t.Helper()
	before := v.hostSent(v.a) + v.hostSent(v.b)
	v.must(talkLong(from, to))
	// More than 80 packets. The host itself sends some (MLD).
	if n := v.hostSent(v.a) + v.hostSent(v.b) - before; n > 20 && !v.netkit {
		v.t.Errorf("%s: %d packets took the stack", to, n)
	}
}

var outerAddrs = []string{"192.0.2.2:9", "[2001:db8::2]:9"}
var innerAddrs = []string{"10.88.0.3:7", "[fd00:88::3]:7"}

// TestPoliciesAreObeyed: what an IPsec policy wants encrypted neither leaves nor enters a pod in
// the clear, also where the forwarding cache holds the addresses and a state the flow.
func TestPoliciesAreObeyed(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	v := newCluster(t, openRules)
	v.serve(v.b.Node, 7)
	v.serve(v.outside, 9)
	for _, c := range []struct {
		name, direction string
		policies        []Policy
		from            *nstest.Node
		to              []string
		between         bool // pods
	}{
		{"out", "out", []Policy{policy("10.88.0.0/24", "192.0.2.0/24"),
			policy("fd00:88::/64", "2001:db8::/64")}, v.a.Node, outerAddrs, false},
		{"in", "fwd", []Policy{policy("192.0.2.0/24", "10.88.0.0/24"),
			policy("2001:db8::/64", "fd00:88::/64")}, v.outside, innerAddrs, false},
		{"between pods", "out", []Policy{policy("10.0.0.0/8", "10.88.0.3/32"),
			policy("fd00::/16", "fd00:88::3/128")}, v.a.Node, innerAddrs, true},
	} {
		open := v.flows(c.from, c.to)
		v.setPolicies(c.direction, c.policies...)
		if err := closed(c.from, c.to, open); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !c.between {
			v.fast(v.a.Node, innerAddrs[0])
			v.fast(v.a.Node, innerAddrs[1])
		}
		v.setPolicies("")
		v.fast(c.from, c.to[0])
		v.fast(c.from, c.to[1])
	}
}

// TestRoutingRulesAreObeyed: with rules by port, or by a mark of netfilter, packets take the routes
// that the stack chooses.
func TestRoutingRulesAreObeyed(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	v := newCluster(t, openRules)
	v.serve(v.b.Node, 7)
	v.serve(v.outside, 9)
	v.serve(v.outside, 10)
	v.netfilter("table inet marks {\nchain prerouting {\n" +
		"type filter hook prerouting priority mangle\nth dport 9 meta mark set 5\n}\n}\n")
	for _, rule := range []string{"dport 9", "fwmark 5"} {
		open := v.flows(v.a.Node, outerAddrs)
		for _, family := range []string{"-4", "-6"} {
			v.host.IP(family + " rule add pref 100 " + rule + " prohibit")
		}
		v.must(v.engine.SetStack(true, nil))
		if err := closed(v.a.Node, outerAddrs, open); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
		for i, other := range []string{"192.0.2.2:10", "[2001:db8::2]:10"} {
			v.must(talkLong(v.a.Node, other))
			v.fast(v.a.Node, innerAddrs[i])
		}
		for _, family := range []string{"-4", "-6"} {
			v.host.IP(family + " rule delete pref 100")
		}
		v.must(v.engine.SetStack(false, nil))
		v.fast(v.a.Node, outerAddrs[0])
	}
}

// TestPoliciesFollowPods: whether a policy may match packets between pods changes with the pods. An
// engine that does not know the policies yet leaves what is in force.
func TestPoliciesFollowPods(t *testing.T) {
	nstest.RequireRoot(t)
	v := newCluster(t, openRules)
	expect := func(when string, want uint32) {
		t.Helper()
		var f weirForwarding
		v.must(v.engine.objects.Forwarding.Lookup(uint32(0), &f))
		if f.Stack != want {
			t.Errorf("%s: %d, want %d", when, f.Stack, want)
		}
	}
	expect("at first", 0)
	v.must(v.engine.SetStack(false, []Policy{policy("10.88.0.0/30", "10.88.0.4/30"),
		policy("::/0", "2001:db8::/32")}))
	expect("no pod is in 10.88.0.4/30", stackNICs)
	c := v.settle("c", 5)
	expect("one is", stackNICs|stackPods)
	v.must(v.engine.Close())
	v.open()
	v.must(v.engine.SetInterfaces(v.ifs))
	v.must(v.engine.Load(compile(t, openRules)))
	v.must(v.engine.DeleteEndpoint(c.endpoint.Index))
	expect("the next engine, before it knows the policies", stackNICs|stackPods)
	v.must(v.engine.SetStack(true, nil))
	expect("routing rules alone", stackNICs)
	v.must(v.engine.SetStack(false, nil))
	expect("nothing", 0)
}
