package dns

import (
	"testing"

	"github.com/weirnet/weir/eyeballs/eyeballstest"
)

func TestTrustAD(t *testing.T) {
	d := startDNS(t)
	d.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1"), AD: true})
	for options, want := range map[string]bool{"": false, "options edns0 trust-ad\n": true} {
		got, _ := lookup(t, etc(t, map[string]string{"resolv.conf": options}, d), "host.test",
			A)
		if got[A].Authentic != want {
			t.Errorf("%q: authentic %v", options, got[A].Authentic)
		}
	}
}

// TestRotate: the servers take turns at being asked first. Which of them answers first depends on
// how long each takes.
func TestRotate(t *testing.T) {
	one, two := startDNS(t), startDNS(t)
	for options, want := range map[string]int{"": 0, "options rotate\n": 3} {
		r := etc(t, map[string]string{"resolv.conf": options}, one, two)
		second := 0
		for range 6 {
			x := &exchange{r: r, config: &r.system().config}
			if x.pickServers(); x.servers[0].addr == two.Addr {
				second++
			}
		}
		if second != want {
			t.Errorf("%q: the second server is the first one %d times of 6", options, second)
		}
	}
}

func TestNoAAAA(t *testing.T) {
	d := startDNS(t)
	d.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1")})
	d.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: addrs("2001:db8::1")})
	r := etc(t, map[string]string{"resolv.conf": "options no-aaaa\n"}, d)
	got, _ := lookup(t, r, "host.test", both)
	wantAddrs(t, got[A], "192.0.2.1")
	wantAddrs(t, got[AAAA])
	if q := asked(d, r); len(q) != 1 || q[0] != "A host.test" {
		t.Errorf("queries %q", q)
	}
}

// TestSystemSource: names of sources that only the C library knows are looked up through it.
func TestSystemSource(t *testing.T) {
	d := startDNS(t)
	r := etc(t, map[string]string{"nsswitch.conf": "hosts: ldap\n"}, d)
	got, _ := lookup(t, r, "localhost", both|HTTPS)
	if a := got[A]; a.From != "system" || a.Err != nil || !a.Addrs[0].IsLoopback() {
		t.Errorf("%+v", a)
	}
	if got[HTTPS].Err == nil {
		t.Error("an HTTPS record from the C library")
	}
	// The next source is used for what the system does not know.
	r = etc(t, map[string]string{"nsswitch.conf": "hosts: files mdns4_minimal [NOTFOUND=return] " +
		"dns\n"}, d)
	if order := r.system().orderFor("printer.local"); len(order) != 2 || order[1] != fromSystem {
		t.Errorf("a name in .local is looked up in %v", order)
	}
	if order := r.system().orderFor("host.test"); len(order) != 2 || order[1] != fromDNS {
		t.Errorf("any other name is looked up in %v", order)
	}
}
