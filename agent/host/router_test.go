package host

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
)

// advertise sends a router advertisement (RFC 4861, section 4.2), with options: a default route for
// 1,800 s.
func advertise(t *testing.T, router *nstest.Node, iface string, options ...byte) {
	t.Helper()
	out, err := nstest.OpenFrames(router, iface)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Stop()
	frame, err := build.Packet(
		build.Ethernet{Src: [6]byte(out.MAC), Dst: [6]byte{0x33, 0x33, 5: 1}},
		build.IPv6{Src: netip.MustParseAddr("fe80::1"), Dst: netip.MustParseAddr("ff02::1"),
			HopLimit: 255},
		build.ICMPv6{Type: 134, Rest: 64<<24 | 1800},
		build.Data(append(make([]byte, 8), options...)))
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Send(frame); err != nil {
		t.Fatal(err)
	}
}

// hasAdvertised reports whether a host has the default route of an advertisement.
func hasAdvertised(t *testing.T, host *nstest.Node, iface string) bool {
	t.Helper()
	link := host.Link(iface)
	routes, err := host.Netlink().Routes(unix.RT_TABLE_MAIN)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if r.Proto == unix.RTPROT_RA && r.Dst == netip.MustParsePrefix("::/0") &&
			r.Link == link.Index {
			return true
		}
	}
	return false
}

// TestRouterKeepsAdvertisedRoutes: a host that gets its default route from router advertisements
// keeps it when it becomes a router. It keeps it also by an interface that is made again, but not
// by those of containers; one that was a router before does not become a host. Afterwards
// everything is as before.
func TestRouterKeepsAdvertisedRoutes(t *testing.T) {
	lab := nstest.New(t)
	host, other := lab.Node("host"), lab.Node("other")
	link := func(iface string) {
		t.Helper()
		lab.Join(host, iface, "", other, iface, "")
	}
	value := func(iface string) (is string) {
		t.Helper()
		err := host.Do(func() error {
			is = readSysctl("ipv6/conf/" + iface + "/accept_ra")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	remake := func(iface string) {
		t.Helper()
		host.IP("link del " + iface)
		link(iface)
	}
	link("eth0")
	link("eth1")
	link("eth2")
	link("docker0")
	host.Sysctl("net.ipv6.conf.eth1.forwarding", "1")
	record := filepath.Join(t.TempDir(), "sysctls.json")
	r := NewRouter(record)
	do := func(f func() error) {
		t.Helper()
		if err := host.Do(f); err != nil {
			t.Fatal(err)
		}
	}
	awaitRoute(t, host, other, "eth0")

	do(func() error { return r.EnableForwarding(true, true) })
	if !hasAdvertised(t, host, "eth0") {
		t.Error("the default route is gone")
	}
	remake("eth2")
	for _, iface := range []string{"eth1", "docker0", "eth2"} {
		do(func() error { return r.AcceptRA(iface) })
	}
	awaitRoute(t, host, other, "eth2")
	for iface, want := range map[string]string{"eth0": "2", "eth2": "2", "eth1": "1",
		"docker0": "1", "lo": "1", "default": "1", "all": "1"} {
		if is := value(iface); is != want {
			t.Errorf("accept_ra of %s is %s, want %s", iface, is, want)
		}
	}

	// The next agent continues, and the administrator's own setting stays at the end.
	r = NewRouter(record)
	do(func() error { return r.PrepareForwarding(true, true) })
	remake("eth2")
	do(func() error { return r.AcceptRA("eth2") })
	if is := value("eth2"); is != "2" {
		t.Errorf("after a restart accept_ra of eth2 is %s", is)
	}
	host.Sysctl("net.ipv6.conf.docker0.accept_ra", "0")
	do(func() error { return RestoreSysctls(record) })
	for iface, want := range map[string]string{"eth0": "1", "docker0": "0", "eth1": "1"} {
		if is := value(iface); is != want {
			t.Errorf("at the end accept_ra of %s is %s, want %s", iface, is, want)
		}
	}
}

// TestUplinkKinds: a NIC that comes later may lead to the host's router, an end of a container not.
func TestUplinkKinds(t *testing.T) {
	for kind, want := range map[string]bool{"device": true, "bond": true, "vlan": true,
		"veth": false, "bridge": false, "tuntap": false, "netkit": false, "": false} {
		if is := mayBeUplink(kind); is != want {
			t.Errorf("%q: %v", kind, is)
		}
	}
}

// TestRouterTakesNoRouteFromContainers: another program makes an interface later, by a name that
// says nothing. It is as little the way to the host's router as one of a known name: not when it
// comes, and not at the next start.
func TestRouterTakesNoRouteFromContainers(t *testing.T) {
	lab := nstest.New(t)
	host, uplink, container := lab.Node("host"), lab.Node("uplink"), lab.Node("container")
	lab.Join(host, "eth0", "", uplink, "eth0", "")
	record := filepath.Join(t.TempDir(), "sysctls.json")
	r := NewRouter(record)
	do := func(f func() error) {
		t.Helper()
		if err := host.Do(f); err != nil {
			t.Fatal(err)
		}
	}
	do(func() error { return r.EnableForwarding(true, true) })
	lab.Join(host, "cali1234", "", container, "eth0", "")
	do(func() error { return r.AcceptRA("cali1234") })
	do(func() error { return NewRouter(record).PrepareForwarding(true, true) })
	awaitRoute(t, host, uplink, "eth0")
	for range 20 {
		advertise(t, container, "eth0")
		time.Sleep(20 * time.Millisecond)
		if hasAdvertised(t, host, "cali1234") {
			t.Fatal("a container is the host's router")
		}
	}
}

// TestRouterBeforeStaysOne: the interfaces of a host that was a router before accept no
// advertisements.
func TestRouterBeforeStaysOne(t *testing.T) {
	lab := nstest.New(t)
	host := lab.Node("host")
	lab.Join(host, "eth0", "", lab.Node("other"), "eth0", "")
	host.Sysctl("net.ipv6.conf.all.forwarding", "1")
	err := host.Do(func() error {
		r := NewRouter(filepath.Join(t.TempDir(), "sysctls.json"))
		if err := r.EnableForwarding(true, true); err != nil {
			return err
		}
		if is := readSysctl("ipv6/conf/eth0/accept_ra"); is != "1" {
			t.Errorf("accept_ra is %s", is)
		}
		return r.AcceptRA("eth0")
	})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitRoute advertises until the host has the route: it listens a moment after the link is up.
func awaitRoute(t *testing.T, host, router *nstest.Node, iface string) {
	t.Helper()
	nstest.Eventually(t, "a route by advertisement at "+iface, func() bool {
		if hasAdvertised(t, host, iface) {
			return true
		}
		advertise(t, router, iface)
		time.Sleep(20 * time.Millisecond)
		return false
	})
}
