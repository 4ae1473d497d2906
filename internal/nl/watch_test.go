package nl_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// follow watches a node and hands out the events.
func follow(t *testing.T, n *nstest.Node) <-chan nl.Event {
	events := make(chan nl.Event, 1024)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- nl.Watch(ctx, n.NS(), func(e nl.Event) { events <- e }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended with %v", err)
		}
	})
	return events
}

// testTimeout is for what has to come, on however busy a machine.
const testTimeout = 5 * time.Minute

// await reads events until one fits.
func await(t *testing.T, events <-chan nl.Event, what string, fits func(nl.Event) bool) {
	t.Helper()
	deadline := time.After(testTimeout)
	for {
		select {
		case e := <-events:
			if fits(e) {
				return
			}
		case <-deadline:
			t.Fatalf("no event: %s", what)
		}
	}
}

func TestWatchReportsListingAndChanges(t *testing.T) {
	lab := nstest.New(t)
	n := lab.Node("n")
	c := n.Netlink()
	events := follow(t, n)
	await(t, events, "lo", func(e nl.Event) bool {
		return e.Kind == nl.LinkSet && e.Link.Name == "lo"
	})
	await(t, events, "end of the listing", func(e nl.Event) bool { return e.Kind == nl.Synced })

	if err := c.AddVeth(nl.Veth{Name: "eth0", PeerName: "eth1"}); err != nil {
		t.Fatal(err)
	}
	await(t, events, "eth0", func(e nl.Event) bool {
		return e.Kind == nl.LinkSet && e.Link.Name == "eth0" && e.Link.Kind == "veth"
	})
	eth, err := c.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"10.0.0.1/24", "fd00::1/64"} {
		p := netip.MustParsePrefix(s)
		if err := c.AddAddr(eth.Index, p); err != nil {
			t.Fatal(err)
		}
		await(t, events, "+"+s, func(e nl.Event) bool {
			return e.Kind == nl.AddrSet && e.Addr.Prefix == p && e.Addr.Link == eth.Index
		})
		if err := c.DeleteAddr(eth.Index, p); err != nil {
			t.Fatal(err)
		}
		await(t, events, "-"+s, func(e nl.Event) bool {
			return e.Kind == nl.AddrGone && e.Addr.Prefix == p
		})
	}
	if err := addBridge(c, "br0"); err != nil {
		t.Fatal(err)
	}
	br, err := c.LinkByName("br0")
	if err != nil {
		t.Fatal(err)
	}
	// Leaving a bridge sends a DELLINK for the link, which nevertheless stays.
	for _, master := range []int{br.Index, 0} {
		if err := setMaster(c, eth.Index, master); err != nil {
			t.Fatal(err)
		}
		await(t, events, fmt.Sprintf("master %d", master), func(e nl.Event) bool {
			if e.Kind == nl.LinkGone {
				t.Fatalf("reported gone: %+v", e.Link)
			}
			return e.Kind == nl.LinkSet && e.Link.Name == "eth0" && e.Link.Master == master &&
				e.Link.Kind == "veth"
		})
	}
	if err := c.RenameLink(eth.Index, "wan0"); err != nil {
		t.Fatal(err)
	}
	await(t, events, "wan0", func(e nl.Event) bool {
		return e.Kind == nl.LinkSet && e.Link.Index == eth.Index && e.Link.Name == "wan0"
	})
	if err := c.DeleteLink(eth.Index); err != nil {
		t.Fatal(err)
	}
	await(t, events, "-wan0", func(e nl.Event) bool {
		return e.Kind == nl.LinkGone && e.Link.Name == "wan0"
	})
}

// TestWatchLosesNothingForGood lets the kernel throw notifications away and compares what was
// reported with what is there.
func TestWatchLosesNothingForGood(t *testing.T) {
	n := nstest.New(t).Node("n")
	c := n.Netlink()
	if err := addBridge(c, "br0"); err != nil {
		t.Fatal(err)
	}
	br, err := c.LinkByName("br0")
	if err != nil {
		t.Fatal(err)
	}
	addrs := map[netip.Prefix]bool{}
	syncs := 0
	listening, goOn := make(chan struct{}), make(chan struct{})
	last := netip.MustParsePrefix("10.255.0.1/32")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	seen := make(chan error, 1)
	go func() {
		// the kernel rounds one byte up to its least: a few notifications
		seen <- nl.WatchBuffered(ctx, n.NS(), 1, func(e nl.Event) {
			switch e.Kind {
			case nl.AddrSet:
				addrs[e.Addr.Prefix] = true
				if e.Addr.Prefix == last {
					cancel()
				}
			case nl.AddrGone:
				delete(addrs, e.Addr.Prefix)
			case nl.Synced:
				if syncs++; syncs == 1 {
					close(listening)
					<-goOn // reads nothing while the flood comes
				}
			}
		})
	}()
	<-listening
	for i := range 300 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32)
		if err := c.AddAddr(br.Index, p); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := c.DeleteAddr(br.Index, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(goOn)
	if err := c.AddAddr(br.Index, last); err != nil {
		t.Fatal(err)
	}
	if err := <-seen; !errors.Is(err, context.Canceled) {
		t.Fatalf("watch ended with %v after %d listings and %d addresses", err, syncs, len(addrs))
	}
	if syncs < 2 {
		t.Fatal("the flood fitted into the buffer: nothing was tested")
	}
	there, err := c.Addrs(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range there {
		if a.Link == br.Index && !addrs[a.Prefix] {
			t.Errorf("%s was never reported", a.Prefix)
		}
		delete(addrs, a.Prefix)
	}
	for p := range addrs {
		t.Errorf("%s was reported and is not there", p)
	}
}
