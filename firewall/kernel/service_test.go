package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
)

// The addresses of services in tests.
var virtual = []netip.Addr{netip.MustParseAddr("10.200.0.10"), netip.MustParseAddr("fd00:200::10")}

// serviceAt are the ends of a service at a port, as text.
func serviceAt(port int) (all []string) {
	for _, a := range virtual {
		all = append(all, netip.AddrPortFrom(a, uint16(port)).String())
	}
	return all
}

// virtualAddresses gives the host the addresses of services, and the outside a route to them.
func (v *cluster) virtualAddresses() {
	v.t.Helper()
	for i, a := range virtual {
		p := netip.PrefixFrom(a, a.BitLen())
		v.must(v.host.Netlink().AddAddr(loopback, p))
		v.ifs[0].Addrs = append(v.ifs[0].Addrs, p)
		v.must(v.outside.AddRoute(p, netip.MustParseAddr([]string{"192.0.2.1", "2001:db8::1"}[i])))
	}
	v.must(v.engine.SetInterfaces(v.ifs))
}

// backend is the pod's end of a family (0: IPv4, 1: IPv6).
func (r *podNode) backend(family int, port uint16) forward.Backend {
	return forward.Backend{To: netip.AddrPortFrom(r.endpoint.Addrs[family], port)}
}

// services are one for each family and protocol, at a port, with port 80 of pods.
func services(port uint16, pods ...*podNode) (all []forward.Service) {
	for family, a := range virtual {
		for _, proto := range []packet.Proto{packet.ProtoTCP, packet.ProtoUDP} {
			s := forward.Service{Proto: proto, At: netip.AddrPortFrom(a, port)}
			for _, p := range pods {
				s.Backends = append(s.Backends, p.backend(family, 80))
			}
			all = append(all, s)
		}
	}
	return all
}

func (v *cluster) setServices(all ...forward.Service) {
	v.t.Helper()
	v.must(v.host.Do(func() error { return v.engine.SetServices(all) }))
}

// serveName answers each connection, and each datagram, on a port of a pod with the pod's name, and
// then echoes.
func (v *cluster) serveName(r *podNode, port int) {
	v.t.Helper()
	l, err := r.Listen("tcp", fmt.Sprintf("[::]:%d", port))
	v.must(err)
	v.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 65536)
				fmt.Fprint(c, r.String())
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					c.Write(b[:n])
				}
			}()
		}
	}()
	for _, family := range []string{"udp4", "udp6"} {
		c, err := r.ListenPacket(family, fmt.Sprintf(":%d", port))
		v.must(err)
		v.t.Cleanup(func() { c.Close() })
		go func() {
			b := make([]byte, 65536)
			for {
				n, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				c.WriteTo(append([]byte(r.String()), b[:n]...), from)
			}
		}()
	}
}

// dialName returns a connection to a pod, and the pod's name.
func dialName(n *nstest.Node, to string, most time.Duration) (net.Conn, string, error) {
	c, err := dialFrom(n, to, most)
	if err != nil {
		return nil, "", err
	}
	c.SetDeadline(time.Now().Add(most))
	b := make([]byte, 1)
	if _, err := c.Read(b); err != nil {
		c.Close()
		return nil, "", err
	}
	return c, string(b), nil
}

// who returns which pod answers over TCP.
func who(n *nstest.Node, to string) (string, error) {
	c, name, err := dialName(n, to, testTimeout)
	if err == nil {
		c.Close()
	}
	return name, err
}

// whoUDP returns which pod answers a datagram of n bytes.
func whoUDP(n *nstest.Node, to string, size int) (string, error) {
	c, err := n.DialContext(context.Background(), "udp", to)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout))
	c.Write([]byte(strings.Repeat("x", size)))
	b := make([]byte, 65536)
	got, err := c.Read(b)
	if err == nil && got != size+1 {
		err = fmt.Errorf("%d bytes came back", got)
	}
	return string(b[0]), err
}

// TestServices: from the outside, the host, another pod and a pod of the service itself, over both
// families and protocols, all pods of a service answer.
func TestServices(t *testing.T) {
	v := newCluster(t, openRules)
	v.virtualAddresses()
	v.serveName(v.a, 80)
	v.serveName(v.b, 80)
	v.setServices(services(8080, v.a, v.b)...)
	for name, from := range map[string]*nstest.Node{"outside": v.outside, "host": v.host,
		"a pod of the service": v.a.Node} {
		for _, to := range serviceAt(8080) {
			seen := map[string]int{}
			for i := 0; i < 64 || i < 1000 && len(seen) < 4; i++ {
				pod, err := who(from, to)
				if err != nil {
					t.Fatalf("%s to %s, connection %d: %v", name, to, i, err)
				}
				seen["tcp "+pod]++
				if pod, err = whoUDP(from, to, []int{10, 4000}[i&1]); err != nil {
					t.Fatalf("%s to %s, datagram %d: %v", name, to, i, err)
				}
				seen["udp "+pod]++
			}
			if len(seen) != 4 {
				t.Errorf("%s to %s: %v", name, to, seen)
			}
		}
	}
	for _, s := range v.states() {
		for _, a := range virtual {
			if s.To.Addr() == a || s.From.Addr() == a {
				t.Errorf("rules saw the address of a service: %+v", s)
			}
		}
	}
}

// TestServiceKeepsFlows: flows stay with their pod when the set changes, and when the engine is
// replaced. Those of a pod that leaves the set end, and so do all when the service goes.
func TestServiceKeepsFlows(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.virtualAddresses()
	v.serveName(v.a, 80)
	v.serveName(v.b, 80)
	v.setServices(services(8080, v.a)...)
	open := map[string][]net.Conn{}
	dial := func(n int) {
		t.Helper()
		for i := range n {
			for _, from := range []*nstest.Node{v.outside, v.host, v.b.Node} {
				c, name, err := dialName(from, serviceAt(8080)[i&1], testTimeout)
				v.must(err)
				t.Cleanup(func() { c.Close() })
				open[name] = append(open[name], c)
			}
		}
	}
	live := func(what string, names ...string) {
		t.Helper()
		for _, name := range names {
			for i, c := range open[name] {
				if err := echoWord(c, what); err != nil {
					t.Errorf("%s: connection %d to %s: %v", what, i, name, err)
				}
			}
		}
	}
	dial(4)
	v.setServices(services(8080, v.a, v.b)...)
	live("b comes", "a")
	for len(open["a"]) < 30 || len(open["b"]) < 10 {
		dial(2)
	}
	v.must(v.engine.Close())
	live("without an agent", "a", "b")
	v.open()
	v.must(v.engine.SetInterfaces(v.ifs))
	v.must(v.engine.Load(compile(t, openRules)))
	v.publish(9090, 80) // before the services are known again
	live("taken over", "a", "b")
	v.setServices(services(8080, v.a, v.b)...)
	live("the same services", "a", "b")
	if _, err := who(v.outside, serviceAt(8080)[0]); err != nil {
		t.Error(err)
	}

	v.setServices(services(8080, v.b)...)
	live("a leaves", "b")
	for i, c := range open["a"] {
		if err := echoWordFor(c, "a leaves", 50*time.Millisecond); err == nil {
			t.Errorf("connection %d continues to a pod that is none of the service's", i)
		}
	}
	for range 16 {
		if name, err := who(v.outside, serviceAt(8080)[0]); err != nil || name != "b" {
			t.Errorf("after a has left, %s answers: %v", name, err)
		}
	}
	v.setServices()
	for i, c := range open["b"] {
		if err := echoWordFor(c, "no service", 50*time.Millisecond); err == nil {
			t.Errorf("connection %d continues through a service that is gone", i)
		}
	}
	if _, err := dialFrom(v.outside, serviceAt(8080)[0], testTimeout); !errors.Is(err,
		unix.ECONNREFUSED) {
		t.Errorf("a service that is gone: %v", err)
	}
}

// TestServiceEvaluatedByPod: rules decide about the pod that was chosen, and what they refuse
// leaves no trace.
func TestServiceEvaluatedByPod(t *testing.T) {
	v := newCluster(t, `add 1 check-state
add allow tcp from 192.0.2.2 to 10.88.0.2 80 in recv eth0 keep-state
add reset tcp from any to 10.88.0.3 80
add deny ip from any to any
`)
	v.virtualAddresses()
	v.serveName(v.a, 80)
	v.serveName(v.b, 80)
	v.setServices(services(8080, v.a, v.b)...)
	refused := 0
	for i := 0; i < 200 && (i < 30 || refused == 0); i++ {
		name, err := who(v.outside, serviceAt(8080)[0])
		switch {
		case errors.Is(err, unix.ECONNREFUSED):
			refused++
		case err != nil || name != "a":
			t.Fatalf("connection %d: %s: %v", i, name, err)
		}
	}
	if refused == 0 {
		t.Error("b, which the rules close, was never chosen")
	}
	for _, s := range v.states() {
		if s.To.Addr() != podA {
			t.Errorf("a refused packet has left a state: %+v", s)
		}
	}
	if n := v.begun(v.b); n != 0 {
		t.Errorf("%d refused connections count as begun", n)
	}
}

// begun returns how many connections of services a pod has begun.
func (v *cluster) begun(r *podNode) (n uint64) { return v.counted(r).Begun }

// counted is what a pod has counted in all services.
func (v *cluster) counted(r *podNode) (sum forward.BackendCounters) {
	v.t.Helper()
	all, err := v.engine.Services()
	v.must(err)
	for _, of := range all {
		for to, c := range of {
			if to.Addr() == r.endpoint.Addrs[0] || to.Addr() == r.endpoint.Addrs[1] {
				sum.Begun += c.Begun
				sum.Accepted += c.Accepted
				sum.Refused += c.Refused
				sum.Drawn += c.Drawn
			}
		}
	}
	return sum
}

// TestServiceWithoutPods: what the rules would let pass is refused with a reason of its own and
// their rule, and leaves no trace; what they answer gets their answer.
func TestServiceWithoutPods(t *testing.T) {
	t.Parallel()
	v := newCluster(t, "add 1 check-state\nadd 10 reset tcp from any to any 81\n"+
		"add 20 allow udp from any to any 82\nadd 30 allow ip from any to any keep-state\n")
	v.virtualAddresses()
	l, err := v.host.Listen("tcp", "[::]:80") // which is not the service
	v.must(err)
	defer l.Close()
	var all []forward.Service
	for _, port := range []uint16{80, 81, 82} {
		all = append(all, services(port)...)
	}
	v.setServices(all...)
	numbers := make(chan uint16, 1000)
	v.must(v.engine.Subscribe(firewall.EventDrop, firewall.EventRefuse))
	go v.engine.Watch(t.Context(), func(e firewall.Event) {
		// A SYN that is sent again is refused again, and may be read behind the datagrams.
		if e.Verdict.Reason == firewall.ReasonNoBackend && e.Dst.Port() == 80 {
			numbers <- e.Verdict.Rule
		}
	})
	for _, from := range []*nstest.Node{v.outside, v.a.Node} {
		for _, to := range serviceAt(80) {
			if _, err := dialFrom(from, to, shortWait); err == nil {
				t.Errorf("%s from %s: something answers", to, from)
			}
			if n := <-numbers; n != 30 {
				t.Errorf("%s from %s: refused by rule %d", to, from, n)
			}
		}
		if _, err := dialFrom(from, serviceAt(81)[0], testTimeout); !errors.Is(err,
			unix.ECONNREFUSED) {
			t.Errorf("what the rules reset: %v", err)
		}
		for _, size := range []int{10, 4000} { // in one piece and in fragments
			before := v.drops(firewall.ReasonNoBackend)
			u, err := from.DialContext(context.Background(), "udp", serviceAt(82)[0])
			v.must(err)
			u.Write(make([]byte, size))
			u.Close()
			nstest.Eventually(t, "a datagram is refused", func() bool {
				return v.drops(firewall.ReasonNoBackend) > before
			})
		}
	}
	before := v.drops(firewall.ReasonNoBackend)
	if _, err := dialFrom(v.host, serviceAt(80)[0], shortWait); err == nil {
		t.Error("the host's own socket answers")
	}
	if v.drops(firewall.ReasonNoBackend) == before {
		t.Error("a call of the host was not counted")
	}
	if all := v.states(); len(all) != 0 {
		t.Errorf("refused packets have left states: %+v", all)
	}
}

// TestServicesMoveToOtherSizes: flows of services continue in an engine with tables of other sizes,
// whatever is set first there, and end when their service is not set.
func TestServicesMoveToOtherSizes(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.virtualAddresses()
	v.serveName(v.a, 80)
	v.serveName(v.b, 80)
	v.setServices(append(services(8080, v.a, v.b), services(8081, v.a)...)...)
	var kept []net.Conn
	for range 16 {
		c, _, err := dialName(v.outside, serviceAt(8080)[0], testTimeout)
		v.must(err)
		defer c.Close()
		kept = append(kept, c)
	}
	ends, _, err := dialName(v.outside, serviceAt(8081)[0], testTimeout)
	v.must(err)
	defer ends.Close()
	v.must(v.engine.Close())
	o := firewall.DefaultOptions()
	o.MaxStates /= 2
	v.must(v.host.Do(func() (err error) {
		v.engine, err = openShared(t, Config{Dir: v.dir, Options: o})
		return err
	}))
	v.must(v.engine.SetInterfaces(v.ifs))
	v.must(v.host.Do(func() error { return v.engine.Load(compile(t, openRules)) }))
	for _, p := range []*podNode{v.a, v.b} {
		v.must(v.host.Do(func() error { return v.engine.SetEndpoint(p.endpoint) }))
	}
	v.publish(9090, 80)
	v.setServices(services(8080, v.a, v.b)...)
	nic := v.ifs[1].Index
	v.must(v.host.Do(func() error { _, err := v.engine.Attach(nic); return err }))
	for i, c := range kept {
		if err := echoWord(c, "after"); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if echoWordFor(ends, "after", shortWait) == nil {
		t.Error("a connection continues through a service that is not set")
	}
	if _, err := who(v.outside, serviceAt(8080)[1]); err != nil {
		t.Error(err)
	}
}
