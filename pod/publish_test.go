package pod

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/forward"
)

// ports are the host ports that the fast path has.
func (l *fakeForwarder) ports() (all []uint16) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.published {
		if !slices.Contains(all, p.Host.Port()) {
			all = append(all, p.Host.Port())
		}
	}
	slices.Sort(all)
	return all
}

// TestTakenPortHoldsBackItself: a port that something else got while no Manager ran keeps no other
// pod's from being published, nor the Manager from starting. It is published when it is free. A pod
// that asks for such a port is refused.
func TestTakenPortHoldsBackItself(t *testing.T) {
	b := newFixture(t)
	publish := func(port uint16) Spec {
		return Spec{Publish: []Publish{{Proto: 6, HostPort: port, Port: 80}}}
	}
	b.attach("one", publish(8080))
	b.attach("two", publish(9090))
	b.m.Close()
	for _, port := range []uint16{8080, 6060} {
		b.fast.taken = append(b.fast.taken, forward.TakenPort{Proto: 6,
			Host: netip.AddrPortFrom(netip.IPv4Unspecified(), port),
			By:   fmt.Errorf("a rule has it")}, forward.TakenPort{Proto: 6,
			Host: netip.AddrPortFrom(netip.IPv6Unspecified(), port),
			By:   fmt.Errorf("a rule has it")})
	}
	var reported []error
	b.start(func(c *Config) {
		c.OnError = func(err error) { reported = append(reported, err) }
	})
	has := func(when string, want ...uint16) {
		t.Helper()
		if got := b.fast.ports(); !slices.Equal(got, want) {
			t.Errorf("%s: %d are published, not %d", when, got, want)
		}
	}
	has("after the start", 9090)
	var taken *forward.TakenError
	if len(reported) != 1 || !errors.As(reported[0], &taken) {
		t.Errorf("the start reported %v", reported)
	}
	b.attach("three", publish(7070))
	has("with another pod", 7070, 9090)
	spec := publish(6060)
	spec.Container, spec.Netns = "four", b.lab.Node("four").Path()
	if _, _, err := b.try(spec); !errors.As(err, &taken) {
		t.Errorf("a pod with a taken port: %v", err)
	}
	has("after the refused pod", 7070, 9090)
	if err := b.m.PublishHeld(); !errors.As(err, &taken) {
		t.Errorf("what is held: %v", err)
	}
	b.fast.taken = nil
	if err := b.m.PublishHeld(); err != nil {
		t.Error(err)
	}
	has("when the port is free", 7070, 8080, 9090)
	if err := b.m.Detach(t.Context(), "one", ""); err != nil {
		t.Error(err)
	}
	has("without the first", 7070, 9090)
}

// TestPortAskedForTwice: a port of every address and that of one family are one, as dockerd asks
// for them with -p 0.0.0.0:8080:80 -p [::]:8080:80. One that is to lead to two ports is refused.
func TestPortAskedForTwice(t *testing.T) {
	b := newFixture(t)
	any4 := netip.IPv4Unspecified()
	b.attach("one", Spec{Publish: []Publish{{Proto: 6, Host: any4, HostPort: 8080, Port: 80},
		{Proto: 6, HostPort: 8080, Port: 80}, {Proto: 6, HostPort: 8080, Port: 80},
		{Proto: 17, HostPort: 8080, Port: 81}}})
	seen := map[string]bool{}
	for _, p := range b.fast.published {
		at := fmt.Sprint(p.Proto, p.Host)
		if seen[at] {
			t.Errorf("%s is published twice", at)
		}
		seen[at] = true
	}
	if len(seen) != 4 {
		t.Errorf("published: %v", b.fast.published)
	}
	for _, second := range []netip.Addr{{}, any4} {
		spec := Spec{Container: "two", Netns: b.lab.Node("two").Path(), Publish: []Publish{
			{Proto: 6, HostPort: 9090, Port: 80},
			{Proto: 6, Host: second, HostPort: 9090, Port: 81}}}
		if _, _, err := b.try(spec); err == nil ||
			!strings.Contains(err.Error(), "host port 9090 cannot lead to its ports 80 and 81") {
			t.Errorf("at %v: %v", second, err)
		}
	}
}

// TestDeadPodAtTheStart: a pod that ended while no Manager ran is removed at the start. The ports
// of those that live stay published meanwhile: the fast path ends connections through others.
func TestDeadPodAtTheStart(t *testing.T) {
	b := newFixture(t)
	names := []string{"one", "two"}
	if hostIf("two/eth0") < hostIf("one/eth0") { // records are read in this order
		slices.Reverse(names)
	}
	dead, _ := b.attach(names[0], Spec{Publish: []Publish{{Proto: 6, HostPort: 8080, Port: 80}}})
	b.attach(names[1], Spec{Publish: []Publish{{Proto: 6, HostPort: 9090, Port: 80}}})
	b.m.Close()
	if err := b.host.Netlink().DeleteLink(int(dead.Index)); err != nil {
		t.Fatal(err)
	}
	b.fast.stay = 9090
	b.start()
	if b.fast.withdrawn {
		t.Error("the port of the living pod was withdrawn for a moment")
	}
	if got := b.fast.ports(); !slices.Equal(got, []uint16{9090}) {
		t.Errorf("%d are published", got)
	}
	if len(b.m.List()) != 1 || len(b.m.pools[0].used) != 1 {
		t.Errorf("pods %+v, addresses %v", b.m.List(), b.m.pools[0].used)
	}
}

// TestInterfacesOfAContainerSharePorts: a runtime asks for the ports of a container in each of its
// networks. They lead to its first interface, and to another one when that is gone.
func TestInterfacesOfAContainerSharePorts(t *testing.T) {
	b := newFixture(t)
	spec := Spec{Container: "web", Publish: []Publish{{Proto: 6, HostPort: 8080, Port: 80}}}
	spec.Netns = b.lab.Node("web").Path()
	var pods [2]Pod
	for i := range pods {
		var err error
		spec.IfName = fmt.Sprint("eth", i)
		if pods[i], _, err = b.try(spec); err != nil {
			t.Fatal(err)
		}
	}
	leads := func(when string, to []netip.Addr) {
		t.Helper()
		var got []netip.Addr
		for _, p := range b.fast.published {
			got = append(got, p.Pod.Addr())
		}
		if !sameAddrs(got, to) {
			t.Errorf("%s the port leads to %v, not %v", when, got, to)
		}
	}
	leads("at first", pods[0].Addrs)
	b.m.Close()
	b.start()
	leads("after a restart", pods[0].Addrs)
	differs := spec
	differs.IfName, differs.Publish = "eth2", []Publish{{Proto: 6, HostPort: 8080, Port: 81}}
	if _, _, err := b.try(differs); err == nil ||
		!strings.Contains(err.Error(), "is published for pod web already") {
		t.Errorf("the port for another one of the container: %v", err)
	}
	other := Spec{Container: "other", Netns: b.lab.Node("other").Path(), Publish: spec.Publish}
	if _, _, err := b.try(other); err == nil ||
		!strings.Contains(err.Error(), "is published for pod web already") {
		t.Errorf("the port for another container: %v", err)
	}
	if err := b.m.Detach(t.Context(), "web", "eth0"); err != nil {
		t.Fatal(err)
	}
	leads("without the first interface", pods[1].Addrs)
}

// TestMappedHostAddresses: a mapped IPv4 address of the host is that IPv4 address. Those that are
// not addresses of a host are refused.
func TestMappedHostAddresses(t *testing.T) {
	b := newFixture(t)
	at := func(host string) Spec {
		return Spec{Publish: []Publish{{Proto: 6, Host: netip.MustParseAddr(host), HostPort: 8080,
			Port: 80}}}
	}
	b.attach("one", at("::ffff:192.0.2.1"))
	if p := b.fast.published; len(p) != 1 || p[0].Host.String() != "192.0.2.1:8080" {
		t.Errorf("published: %v", p)
	}
	for host, want := range map[string]string{"192.0.2.1": "published for pod one already",
		"fe80::1%eth0": "host address fe80::1%eth0", "ff02::1": "host address ff02::1"} {
		spec := at(host)
		spec.Container, spec.Netns = "two", b.lab.Node("two"+fmt.Sprint(len(host))).Path()
		if _, _, err := b.try(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("at %s: %v", host, err)
		}
	}
}

// TestPortOfAFamilyThatThePodDoesNotHave is refused, and keeps no address. One that is published at
// an address of the pod's family too is not, since runtimes ask for both, nor with another IPAM.
func TestPortOfAFamilyThatThePodDoesNotHave(t *testing.T) {
	b := newFixture(t)
	four, six := netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()
	at := func(hosts ...netip.Addr) (all []Publish) {
		for _, host := range hosts {
			all = append(all, Publish{Proto: 6, Host: host, HostPort: 8080, Port: 80})
		}
		return all
	}
	for i, c := range []struct {
		addr     string
		publish  []Publish
		external bool
		want     string
	}{
		{"10.88.0.9", at(six), false, "cannot publish port 80 at [::1]:8080: the pod has no IPv6"},
		{"fd00:88::9", at(four), false, "at 127.0.0.1:8080: the pod has no IPv4 address"},
		{"10.88.0.9", at(four, six), false, ""},
		{"10.88.0.9", at(netip.Addr{}), false, ""},
		{"10.88.0.9", at(six), true, ""},
	} {
		spec := Spec{Container: "one", Netns: b.lab.Node(fmt.Sprint("n", i)).Path(),
			OnlyAddrs: !c.external, ExternalIPAM: c.external, Publish: c.publish,
			Addrs: []netip.Addr{netip.MustParseAddr(c.addr)}}
		_, _, err := b.try(spec)
		if c.want == "" && err != nil || c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s at %v: %v", c.addr, c.publish, err)
		}
		if err := b.m.Detach(t.Context(), "one", ""); err != nil {
			t.Fatal(err)
		}
		if left := b.traces(); len(left)+len(b.m.pools[0].used)+len(b.m.pools[1].used) != 0 {
			t.Errorf("%s at %v leaves %v", c.addr, c.publish, left)
		}
	}
}
