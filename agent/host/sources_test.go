package host

import (
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// TestSourceSettings reads them as the kernel combines them.
func TestSourceSettings(t *testing.T) {
	n := nstest.New(t).Node("host")
	for _, c := range []struct {
		key, value string
		local      bool
		reverse    firewall.ReversePath
	}{
		{"net.ipv4.conf.lo.rp_filter", "1", false, firewall.ReverseStrict},
		{"net.ipv4.conf.all.rp_filter", "2", false, firewall.ReverseLoose},
		{"net.ipv4.conf.lo.accept_local", "1", true, firewall.ReverseLoose},
		{"net.ipv4.conf.lo.accept_local", "0", false, firewall.ReverseLoose},
		{"net.ipv4.conf.all.accept_local", "1", true, firewall.ReverseLoose},
	} {
		if err := n.SetSysctl(c.key, c.value); err != nil {
			t.Fatal(err)
		}
		err := n.Do(func() error {
			if local, reverse := sourceSettings("lo"); local != c.local || reverse != c.reverse {
				t.Errorf("%s=%s: accept_local %v, rp_filter %d", c.key, c.value, local, reverse)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSourceSettingsAreReadAgain: a change without a notification wakes the node, and nothing else
// does.
func TestSourceSettingsAreReadAgain(t *testing.T) {
	l := NewLinks()
	mode := firewall.ReverseNone
	l.sources = func(string) (bool, firewall.ReversePath) { return false, mode }
	l.Report(nl.Event{Kind: nl.LinkSet, Link: nl.Link{Index: 2, Name: "eth0", Up: true}})
	l.AddPod(3, "pod:a")
	l.Report(nl.Event{Kind: nl.LinkSet, Link: nl.Link{Index: 3, Name: "poda", Up: true}})
	l.Report(nl.Event{Kind: nl.Synced})
	<-l.wake
	l.Reread()
	if len(l.wake) != 0 {
		t.Error("woken for nothing")
	}
	mode = firewall.ReverseStrict
	l.Reread()
	if len(l.wake) != 1 {
		t.Error("not woken")
	}
	all := l.Interfaces()
	if all[0].ReversePath != firewall.ReverseStrict || all[1].ReversePath != firewall.ReverseNone {
		t.Errorf("%+v", all)
	}
}

// TestSourceSettingsReadByAnEvent: a change that is found because the kernel reports something else
// of the interface wakes the node, too: the next reread has nothing to compare it with.
func TestSourceSettingsReadByAnEvent(t *testing.T) {
	l := NewLinks()
	mode := firewall.ReverseNone
	l.sources = func(string) (bool, firewall.ReversePath) { return false, mode }
	eth := nl.Link{Index: 2, Name: "eth0", Up: true, MTU: 1500}
	l.Report(nl.Event{Kind: nl.LinkSet, Link: eth})
	l.Report(nl.Event{Kind: nl.Synced})
	<-l.wake
	mode = firewall.ReverseStrict
	eth.MTU = 9000
	l.Report(nl.Event{Kind: nl.LinkSet, Link: eth})
	l.Reread()
	if len(l.wake) != 1 || l.Interfaces()[0].ReversePath != firewall.ReverseStrict {
		t.Errorf("woken: %d, %+v", len(l.wake), l.Interfaces())
	}
}

// TestRouter6: an interface shows whether the host is a router there, and a change is noticed.
func TestRouter6(t *testing.T) {
	n := nstest.New(t).Node("host")
	for _, value := range []string{"1", "0"} {
		if err := n.SetSysctl("net.ipv6.conf.lo.forwarding", value); err != nil {
			t.Fatal(err)
		}
		if err := n.Do(func() error {
			if isRouter6("lo") != (value == "1") || isRouter6("gone") {
				t.Errorf("forwarding=%s: %t, %t", value, isRouter6("lo"), isRouter6("gone"))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	l, router := NewLinks(), false
	l.router6 = func(string) bool { return router }
	l.Report(nl.Event{Kind: nl.LinkSet, Link: nl.Link{Index: 2, Name: "eth0", Up: true}})
	l.Report(nl.Event{Kind: nl.Synced})
	<-l.wake
	router = true
	l.Reread()
	if all := l.Interfaces(); len(l.wake) != 1 || len(all) != 1 || !all[0].Router6 {
		t.Errorf("woken: %d, %+v", len(l.wake), all)
	}
}
