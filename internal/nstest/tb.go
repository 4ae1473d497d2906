package nstest

import (
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// TB is what this package needs of a testing.TB. Naming it here keeps package testing out of the
// demo.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// RequireRoot skips the test unless it runs as root with the right to make network namespaces. With
// WEIR_CI=1 in the environment it fails the test instead.
func RequireRoot(t TB) {
	t.Helper()
	if why := lacking(); why != "" {
		if os.Getenv("WEIR_CI") == "1" {
			t.Fatalf("NOT TESTED: %s, and WEIR_CI=1 forbids to skip", why)
			return
		}
		t.Skipf("NOT TESTED: %s; run as root to test this", why)
	}
}

// lacking names what is missing for the work of this package, or nothing.
func lacking() string {
	if os.Geteuid() != 0 {
		return "needs root"
	}
	// CAP_SYS_ADMIN and CAP_NET_ADMIN: a container's root often has neither.
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return "cannot read capabilities: " + err.Error()
	}
	for _, c := range []struct {
		bit  int
		name string
	}{{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}, {unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}} {
		if data[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			return "needs " + c.name
		}
	}
	return ""
}

// New opens a lab for a test and closes it when the test ends.
func New(t TB) *Lab {
	t.Helper()
	RequireRoot(t)
	l, err := Open()
	if err != nil {
		t.Fatalf("open lab: %v", err)
	}
	l.t = t
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close lab: %v", err)
		}
	})
	return l
}

// Node is AddNode in a test: an error fails the test.
func (l *Lab) Node(label string) *Node {
	l.t.Helper()
	n, err := l.AddNode(label)
	if err != nil {
		l.t.Fatalf("%v", err)
	}
	n.t = l.t
	return n
}

// Join is AddLink in a test: an error fails the test. Each list holds addresses with their network
// lengths, separated by blanks: "10.0.0.1/24 fd00::1/64".
func (l *Lab) Join(a *Node, aIface, aAddrs string, b *Node, bIface, bAddrs string) {
	l.t.Helper()
	aps, err := Prefixes(aAddrs)
	if err != nil {
		l.t.Fatalf("join %s and %s: %v", a, b, err)
	}
	bps, err := Prefixes(bAddrs)
	if err != nil {
		l.t.Fatalf("join %s and %s: %v", a, b, err)
	}
	if err := l.AddLink(End{a, aIface, aps}, End{b, bIface, bps}); err != nil {
		l.t.Fatalf("%v", err)
	}
}

// Route adds a route in a test: what goes to dst is sent through via. An error fails the test.
func (n *Node) Route(dst, via string) {
	n.t.Helper()
	p, err := netip.ParsePrefix(dst)
	if err != nil {
		n.t.Fatalf("%s: route: %v", n, err)
	}
	hop, err := netip.ParseAddr(via)
	if err != nil {
		n.t.Fatalf("%s: route: %v", n, err)
	}
	if err := n.AddRoute(p, hop); err != nil {
		n.t.Fatalf("%s: %v", n, err)
	}
}

// Sysctl is SetSysctl in a test: an error fails the test.
func (n *Node) Sysctl(key, value string) {
	n.t.Helper()
	if err := n.SetSysctl(key, value); err != nil {
		n.t.Fatalf("%s: %v", n, err)
	}
}

// Link returns an interface of the node in a test: an error fails the test.
func (n *Node) Link(name string) nl.Link {
	n.t.Helper()
	l, err := n.conn.LinkByName(name)
	if err != nil {
		n.t.Fatalf("%s: %v", n, err)
	}
	return l
}

// Run runs a program inside the node in a test: an error fails the test.
func (n *Node) Run(name string, args ...string) {
	n.t.Helper()
	if out, err := n.Command(name, args...).CombinedOutput(); err != nil {
		n.t.Fatalf("%s: %s %s: %v\n%s", n, name, strings.Join(args, " "), err, out)
	}
}

// IP is Run of ip(8) with the words of a line: "route add 10.0.0.0/8 dev lo".
func (n *Node) IP(line string) {
	n.t.Helper()
	n.Run("ip", strings.Fields(line)...)
}

// Bpffs mounts a bpf file system for a test alone, returns its directory, and removes it when
// the test ends.
func Bpffs(t TB) string {
	t.Helper()
	RequireRoot(t)
	dir, unmount, err := MountBpffs()
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := unmount(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return dir
}
