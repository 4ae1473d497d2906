package eyeballs

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestParseRoute(t *testing.T) {
	const head = "Iface\tDestination\tGateway " +
		"\tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	for text, want := range map[string]bool{
		"":   false,
		head: false,
		head + "lo\t0000007F\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n":   false,
		head + "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n": true,
		head + "eth0\t00000000\t010200C0\t0002\t0\t0\t0\t00000000\t0\t0\t0\n": false, // down
		// unreachable
		head + "*\t0000000A\t00000000\t0201\t0\t0\t0\t000000FF\t0\t0\t0\n":     false,
		head + "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\nx": true,
	} {
		h := fnv.New64a()
		if got := parseRoute(text, h); got != want {
			t.Errorf("%q: %v", text, got)
		}
		if changed := h.Sum64() != fnv.New64a().Sum64(); changed != want {
			t.Errorf("%q: hash changed: %v", text, changed)
		}
	}
}

func TestParseIfInet6(t *testing.T) {
	h := fnv.New64a()
	if any, _ := parseIfInet6("00000000000000000000000000000001 01 80 10 80       lo\n"+
		"fe8000000000000000fc00fffe000001 02 40 20 80     eth0\n", h); any {
		t.Error("loopback and link-local addresses count as connectivity")
	}
	if any, _ := parseIfInet6("20010db8000000000000000000000002 02 40 00 c0     eth0\n", h); any {
		t.Error("a tentative address counts")
	}
	any, old := parseIfInet6("20010db8000000000000000000000002 02 40 00 a0     eth0\n"+
		"20010db8000000000000000000000003 02 40 00 80     eth0\nbad line\n", h)
	if !any || len(old) != 1 || !old[netip.MustParseAddr("2001:db8::2")] {
		t.Errorf("any %v, deprecated %v", any, old)
	}
}

func TestReadHostView(t *testing.T) {
	v := readHostView()
	if v.route4.IsValid() && !v.v4 || v.route6.IsValid() && !v.v6 {
		t.Errorf("a route without a family: %+v", v)
	}
	if src := v.source(netip.MustParseAddr("127.0.0.1")); !src.IsLoopback() {
		t.Errorf("from %v to loopback", src)
	}
}

// TestManyLinkLocalAddresses: a host has IPv6 also if its only global address is behind the
// link-local ones of a thousand interfaces in what the kernel lists.
func TestManyLinkLocalAddresses(t *testing.T) {
	const inside = "WEIR_TEST_MANY_ADDRESSES"
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root, for a network namespace")
	}
	if os.Getenv(inside) == "" { // /proc/net is that of the process, not of a thread
		c := exec.Command(os.Args[0], "-test.run=^TestManyLinkLocalAddresses$")
		c.Env = append(os.Environ(), inside+"=1")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	ip := func(lines ...string) {
		t.Helper()
		c := exec.Command("ip", "-batch", "-")
		c.Stdin = strings.NewReader(strings.Join(lines, "\n"))
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	lines := []string{"link add many0 type veth peer many1", "link set many0 up"}
	for i := range 3000 {
		lines = append(lines, fmt.Sprintf("addr add fe80::1:%x/64 dev many0 nodad", i))
	}
	ip(lines...)
	for i := 1; ; i++ { // the kernel orders them by a hash
		a := netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: byte(i)})
		ip(fmt.Sprintf("addr add %s/64 dev many0 nodad", a))
		list, err := os.ReadFile("/proc/net/if_inet6")
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Index(list, []byte(hex.EncodeToString(a.AsSlice()))) > procLimit {
			break
		}
		if i == 100 {
			t.Fatal("every address is among the first")
		}
		ip(fmt.Sprintf("addr del %s/64 dev many0", a))
	}
	ip("route add default via 2001:db8::ff dev many0")
	v := readHostView()
	if !v.v6 || v.v4 || !v.route6.IsValid() {
		t.Errorf("IPv6 %v, IPv4 %v, route from %v", v.v6, v.v4, v.route6)
	}
	if again := readHostView(); again.id != v.id { // the host's own network may change meanwhile
		t.Error("the same network twice has two ids")
	}
}
