package kernel

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// routeLab is a cluster with another network behind the outside, which the host reaches by routes
// that may have an MTU of their own.
type routeLab struct {
	*cluster
	far *nstest.Node
}

func newRouteLab(t *testing.T) *routeLab {
	t.Helper()
	v := newCluster(t, openRules)
	far := v.lab.Node("far")
	v.lab.Join(v.outside, "far", "198.51.100.1/24 2001:db8:1::1/64", far, "eth0",
		"198.51.100.2/24 2001:db8:1::2/64")
	for _, key := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		v.must(v.outside.SetSysctl(key, "1"))
	}
	for i, r := range podRanges {
		v.must(far.AddRoute(r, netip.MustParseAddr([]string{"198.51.100.1", "2001:db8:1::1"}[i])))
	}
	v.serve(far, 80)
	v.serve(v.a.Node, 80)
	return &routeLab{v, far}
}

// forget removes the MTUs that the pod has learned.
func (v *routeLab) forget() {
	v.t.Helper()
	v.a.Node.IP("-4 route flush cache")
	v.a.Node.IP("-6 route flush cache")
}

// setMTU gives the routes an MTU and passes it on to the engine, or neither.
func (v *routeLab) setMTU(mtu string) {
	v.t.Helper()
	v.host.IP("route replace 198.51.100.0/24 via 192.0.2.2 " + mtu)
	v.host.IP("-6 route replace 2001:db8:1::/64 via 2001:db8::2 " + mtu)
	routes, err := v.host.Netlink().RoutesWithMTU()
	v.must(err)
	var mtus []RouteMTU
	for _, r := range routes {
		mtus = append(mtus, RouteMTU{Dst: r.Dst, MTU: uint32(r.MTU)})
	}
	if want := 2 * bit(mtu != ""); len(mtus) != int(want) {
		v.t.Errorf("%q: routes with an MTU of their own: %v", mtu, mtus)
	}
	v.must(v.engine.SetRouteMTUs(mtus))
}

// tooBig reports whether a packet of the pod is answered by the error for one that is too big.
func (v *routeLab) tooBig(to string, size int) bool {
	v.t.Helper()
	v.forget()
	out, err := v.a.Command("ping", "-c1", "-W300", fmt.Sprint("-s", size), "-Mdo",
		to).CombinedOutput()
	text := strings.ToLower(string(out))
	if reported := strings.Contains(text, "frag needed") ||
		strings.Contains(text, "too big"); reported || err == nil {
		return reported
	}
	v.t.Errorf("%d bytes to %s: neither an answer nor an error: %s", size, to, out)
	return false
}

// TestRouteMTU: a route with an MTU of its own says how large a packet of a pod may be. It does so
// without the fast path, too (the control: no hook at the pod).
func TestRouteMTU(t *testing.T) {
	t.Parallel()
	v := newRouteLab(t)
	for _, c := range []struct {
		mtu                string
		want1150, want1300 bool
	}{
		{"", false, false}, {"mtu 1280", false, true}, {"mtu lock 1280", false, true},
	} {
		v.setMTU(c.mtu)
		check := func(how, to string) {
			t.Helper()
			v.must(ping(v.a.Node, to)) // the neighbour is known
			for size, want := range map[int]bool{1150: c.want1150, 1300: c.want1300} {
				if got := v.tooBig(to, size); got != want {
					t.Errorf("%s, %q: %d bytes to %s: reported too big: %v, not %v", how, c.mtu,
						size, to, got, want)
				}
			}
		}
		for _, to := range []string{"198.51.100.2", "2001:db8:1::2"} {
			check("with Weir", to)
			v.must(v.host.Do(func() error { return v.engine.Detach(v.a.endpoint.Index) }))
			check("without", to)
			v.must(v.host.Do(func() error {
				_, err := v.engine.Attach(v.a.endpoint.Index)
				return err
			}))
		}
	}
	// A stream in large segments, which are measured one by one.
	long := strings.Repeat("0123456789abcdef", 1<<14)
	for _, w := range []struct {
		from *nstest.Node
		to   string
	}{
		{v.a.Node, "198.51.100.2:80"}, {v.a.Node, "[2001:db8:1::2]:80"},
		{v.far, "10.88.0.2:80"}, {v.far, "[fd00:88::2]:80"},
	} {
		v.forget()
		c, err := dialFrom(w.from, w.to, testTimeout)
		v.must(err)
		if err := echoText(c, long); err != nil {
			t.Errorf("%s to %s: %v", w.from, w.to, err)
		}
		c.Close()
	}
}
