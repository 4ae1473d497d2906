package kernel

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// setAsked gives the engine policies that the host itself does not have: what they stop, the
// programs have stopped.
func (v *cluster) setAsked(all ...Policy) {
	v.t.Helper()
	v.must(v.engine.SetStack(false, all))
}

// inClear is a policy that protects nothing.
func inClear(p Policy) Policy { p.Protects = false; return p }

// answered reports whether a refused call gets its answers: a reset and an ICMP error. If they are
// wanted, it waits for them.
func (v *cluster) answered(host string, want bool) error {
	most := waitTime(want)
	to := func(port uint16) string {
		return netip.AddrPortFrom(netip.MustParseAddr(host), port).String()
	}
	reset := make(chan error)
	go func() {
		_, err := dialFrom(v.outside, to(81), most)
		reset <- err
	}()
	c, err := v.outside.DialContext(v.t.Context(), "udp", to(82))
	if err == nil {
		defer c.Close()
		err = echoWordFor(c, "refused", most)
	}
	tcp := <-reset
	switch a, b := errors.Is(tcp, unix.ECONNREFUSED), errors.Is(err, unix.ECONNREFUSED); {
	case a && b:
		return nil
	case a || b || tcp == nil || err == nil:
		v.t.Errorf("%s: tcp: %v; udp: %v", host, tcp, err)
	}
	return errors.Join(tcp, err)
}

// TestAnswersMeetPolicies: a packet gets no answer that an IPsec policy may want encrypted, since
// the programs send it past the stack. Others get theirs.
func TestAnswersMeetPolicies(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	v := newCluster(t, "add 1 check-state\nadd reset tcp from any to any 81 in\n"+
		"add unreach port udp from any to 192.0.2.1,10.88.0.2 82 in\n"+
		"add unreach6 port udp from any to any 82 in\n"+
		"add allow ip from any to any keep-state\n")
	host := policy("192.0.2.1/32", "192.0.2.0/30")
	part := host
	part.Proto, part.Ports, part.PortsMask = packet.ProtoUDP, 9, 0xffff
	part.Mark, part.MarkMask = 7, 0xff
	forward := host
	forward.Forward = true
	for _, c := range []struct {
		name     string
		policies []Policy
		none     []string // of these addresses
	}{
		{"no policies", nil, nil},
		{"for the host", []Policy{host}, []string{"192.0.2.1"}},
		{"for a part of its packets", []Policy{part}, []string{"192.0.2.1"}},
		{"behind one that protects nothing", []Policy{inClear(host), host}, nil},
		{"behind one for a part", []Policy{inClear(part), host}, []string{"192.0.2.1"}},
		{"about what comes in", []Policy{forward}, nil},
		{"from others", []Policy{policy("192.0.2.2/32", "192.0.2.2/32")}, nil},
		{"for pods", []Policy{policy("10.88.0.0/24", "192.0.2.2/32"),
			policy("fd00:88::/64", "::/0")}, []string{"10.88.0.2", "fd00:88::2"}},
		{"for IPv6", []Policy{policy("::/0", "::/0")}, []string{"2001:db8::1", "fd00:88::2"}},
	} {
		v.setAsked(c.policies...)
		before, err := v.engine.Stats()
		v.must(err)
		var all sync.WaitGroup
		for _, host := range []string{"192.0.2.1", "2001:db8::1", "10.88.0.2", "fd00:88::2"} {
			all.Go(func() {
				want := !slices.Contains(c.none, host)
				if err := v.answered(host, want); (err == nil) != want {
					t.Errorf("%s: %s: %v", c.name, host, err)
				}
			})
		}
		all.Wait()
		after, err := v.engine.Stats()
		v.must(err)
		if n := after.Unanswered - before.Unanswered; (n > 0) != (c.none != nil) {
			t.Errorf("%s: %d answers were not sent", c.name, n)
		}
	}
}

// TestTranslationsMeetPolicies: no packet leaves in the clear that, as translated, an IPsec policy
// wants encrypted: neither that of a masqueraded pod, nor an answer of a published port.
func TestTranslationsMeetPolicies(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	v := newCluster(t, openRules)
	v.serve(v.a.Node, 80)
	v.serve(v.outside, 9)
	v.masquerade(20000, 30000)
	v.publish(8080, 80)
	port := policy("192.0.2.1/32", "192.0.2.2/32")
	port.Proto, port.Ports, port.PortsMask = packet.ProtoTCP, 10, 0xffff
	marked := policy("192.0.2.1/32", "0.0.0.0/0")
	marked.Mark, marked.MarkMask = 7, 0xff
	all := policy("192.0.2.1/32", "0.0.0.0/0")
	for _, c := range []struct {
		name      string
		policies  []Policy
		four, six bool // pass
	}{
		{"no policies", nil, true, true},
		{"for the host", []Policy{all}, false, true},
		{"for IPv6", []Policy{policy("2001:db8::1/128", "2001:db8::/64")}, true, false},
		{"for another port", []Policy{port}, true, true},
		{"for a mark", []Policy{marked}, true, true},
		{"behind one that protects nothing", []Policy{inClear(all), all}, true, true},
		{"for other hosts", []Policy{policy("192.0.2.1/32", "192.0.2.9/32")}, true, true},
	} {
		v.setAsked(c.policies...)
		for _, w := range []struct {
			from *nstest.Node
			to   string
			want bool
		}{{v.a.Node, "192.0.2.2:9", c.four}, {v.a.Node, "[2001:db8::2]:9", c.six},
			{v.outside, "192.0.2.1:8080", c.four}, {v.outside, "[2001:db8::1]:8080", c.six}} {
			before := v.drops(firewall.ReasonIPsec)
			if udp, tcp := v.passes(w.from, w.to, w.want, w.want); udp != w.want ||
				tcp != w.want {
				t.Errorf("%s: %s: udp %v, tcp %v, want %v", c.name, w.to, udp, tcp, w.want)
			}
			// more may be dropped of connections that ended before
			if !w.want && v.drops(firewall.ReasonIPsec) == before {
				t.Errorf("%s: %s: nothing is dropped for a policy", c.name, w.to)
			}
		}
	}
}

// passes reports whether an address answers that may or may not.
func (v *cluster) passes(from *nstest.Node, to string, wantUDP, wantTCP bool) (udp, tcp bool) {
	v.t.Helper()
	c, err := from.DialContext(v.t.Context(), "udp", to)
	v.must(err)
	defer c.Close()
	done := make(chan bool)
	go func() { done <- exchangeFor(from, to, waitTime(wantTCP)) == nil }()
	udp = echoWordFor(c, "over udp", waitTime(wantUDP)) == nil
	return udp, <-done
}

// TestFwdMeetsPolicies: a rule with fwd does not send on, past the stack, what an IPsec policy is
// about. It goes where it would go without the rule, and the stack asks the policy.
func TestFwdMeetsPolicies(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	u := newUplinks(t, hopRules["in"])
	four := policy("10.1.0.2/32", "203.0.113.0/24")
	forward := four
	forward.Forward = true
	udp := four
	udp.Proto, udp.Ports, udp.PortsMask = packet.ProtoUDP, 80, 0xffff
	for _, pods := range []bool{false, true} {
		if pods {
			u.settle("a", 2)
		}
		for _, c := range []struct {
			name     string
			policies []Policy
			udp, tcp bool // reach the second uplink
		}{
			{"no policies", nil, true, true},
			{"out", []Policy{four}, false, false},
			{"fwd", []Policy{forward}, false, false},
			{"of udp", []Policy{udp}, false, true},
			{"behind one that protects nothing", []Policy{inClear(four), four}, true, true},
			{"for others", []Policy{policy("10.1.0.3/32", "203.0.113.9/32")}, true, true},
		} {
			if pods && c.name != "out" {
				continue
			}
			u.setAsked(c.policies...)
			udp, tcp := u.passes(u.client, "203.0.113.9:80", c.udp, c.tcp)
			if udp != c.udp || tcp != c.tcp {
				t.Errorf("%s, pods %v: udp %v, tcp %v, want %v, %v", c.name, pods, udp, tcp, c.udp,
					c.tcp)
			}
		}
	}
}

// TestManyPolicies: where the programs have no space for all policies, the last of them protect
// everything that leaves.
func TestManyPolicies(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	v := newCluster(t, openRules)
	all := make([]Policy, maxPolicies+1)
	for i := range all {
		a := netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)})
		all[i] = policy(netip.PrefixFrom(a, 32).String(), "192.0.2.7/32")
	}
	v.must(v.engine.SetStack(false, all[:maxPolicies]))
	last := func() (p weirPolicy) {
		second := bit(v.engine.forwarding.Policies&policiesSecond != 0)
		v.must(v.engine.objects.Policies.Lookup(second*maxPolicies+maxPolicies-1, &p))
		p.Next, p.First, p.Bucket, p.Buckets, p.Group = 0, 0, 0, 0, 0
		return p
	}
	if got := last(); got != policyWords(all[maxPolicies-1]) {
		t.Errorf("the last of as many as possible: %+v", got)
	}
	if err := v.engine.SetStack(false, all); !errors.Is(err, errManyPolicies) {
		t.Errorf("one more: %v", err)
	}
	if got := last(); got != policyWords(protectAll[1]) {
		t.Errorf("the last of too many: %+v", got)
	}
	if err := v.engine.SetStack(false, all); !errors.Is(err, errManyPolicies) {
		t.Errorf("again: %v", err)
	}
	v.must(v.engine.SetStack(false, nil))
	if v.engine.forwarding.Policies != 0 {
		t.Errorf("without policies %d are asked", v.engine.forwarding.Policies)
	}
}

// TestRateOfAnswersComesFirst: IPsec policies are asked only about an answer that a rate allows, so
// one that they prevent counts for the rate. ICMP errors and resets have rates of their own.
func TestRateOfAnswersComesFirst(t *testing.T) {
	e := newEngine(t)
	if err := errors.Join(e.Load(compile(t, "add reset tcp from any to any\n"+
		"add unreach port udp from any to any\n")),
		e.SetStack(false, []Policy{policy("10.0.0.1/32", "10.0.0.2/32")})); err != nil {
		t.Fatal(err)
	}
	const never = math.MaxInt64 // the time from which on another error may be sent
	refuse := func(from string, layer build.Layer, answerTime int64) (sent, taken bool) {
		t.Helper()
		timeOf := func(c *weirCpu) (its, other *int64) {
			if _, is := layer.(build.TCP); is {
				return &c.ResetTime, &c.AnswerTime
			}
			return &c.AnswerTime, &c.ResetTime
		}
		editCPUs(t, e, func(c *weirCpu) {
			its, other := timeOf(c)
			*its, *other = answerTime, never
		})
		b := enginetest.Packet(t, build.IPv4{Src: netip.MustParseAddr(from),
			Dst: netip.MustParseAddr("10.0.0.1")}, layer, build.Data(make([]byte, 20)))
		o := &ebpf.RunOptions{Data: append(frameFor(b), b...), DataOut: make([]byte, 256)}
		code, err := e.objects.WeirIn.Run(o)
		if err != nil {
			t.Fatal(err)
		}
		editCPUs(t, e, func(c *weirCpu) {
			its, other := timeOf(c)
			taken = taken || *its != answerTime
			if *other != never {
				t.Error("the other rate was taken from")
			}
		})
		return int32(code) == redirected, taken
	}
	udp, tcp := build.UDP{SrcPort: 5, DstPort: 9}, build.TCP{SrcPort: 5, DstPort: 9}
	for _, c := range []struct {
		from        string
		layer       build.Layer
		answerTime  int64
		sent, taken bool
	}{
		{"10.0.0.3", udp, 0, true, true},
		{"10.0.0.3", udp, never, false, false},
		{"10.0.0.3", tcp, 0, true, true},
		{"10.0.0.3", tcp, never, false, false},
		{"10.0.0.2", udp, 0, false, true},
		{"10.0.0.2", udp, never, false, false},
		{"10.0.0.2", tcp, 0, false, true},
		{"10.0.0.2", tcp, never, false, false},
	} {
		if sent, taken := refuse(c.from, c.layer, c.answerTime); sent != c.sent ||
			taken != c.taken {
			t.Errorf("%+v: sent %v, taken %v", c, sent, taken)
		}
	}
	if s, err := e.Stats(); err != nil || s.Unanswered != 6 {
		t.Errorf("%d answers were not sent, not 6 (%v)", s.Unanswered, err)
	}
	if err := e.SetStack(false, nil); err != nil {
		t.Fatal(err)
	}
	if sent, taken := refuse("10.0.0.3", tcp, never); !sent || taken {
		t.Errorf("without policies: a reset was sent: %v; it counts: %v", sent, taken)
	}
}
