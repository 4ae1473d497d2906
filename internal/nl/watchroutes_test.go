package nl_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

func TestWatchRoutesTellsOfChanges(t *testing.T) {
	lab := nstest.New(t)
	a, b := lab.Node("a"), lab.Node("b")
	lab.Join(a, "eth0", "10.0.0.1/24", b, "eth0", "10.0.0.2/24")
	ctx, cancel := context.WithCancel(context.Background())
	reported, ended := make(chan nl.RouteChange, 100), make(chan error, 1)
	go func() {
		ended <- nl.WatchRoutes(ctx, a.NS(), func(c nl.RouteChange) { reported <- c })
	}()
	await := func(what string, want nl.RouteChange) {
		t.Helper()
		select {
		case got := <-reported:
			if got != want {
				t.Errorf("%s: reported as %+v", what, got)
			}
		case <-time.After(testTimeout):
			t.Fatalf("not reported: %s", what)
		}
	}
	await("the beginning", nl.RouteChange{MTU: true, Local: true})
	// Changes that came in with the links may still be reported; then it is quiet.
	time.Sleep(300 * time.Millisecond)
	for len(reported) > 0 {
		<-reported
	}
	r := nl.Route{Dst: netip.MustParsePrefix("192.0.2.0/24"), Via: netip.MustParseAddr("10.0.0.2")}
	if err := a.Netlink().AddRoute(r); err != nil {
		t.Fatal(err)
	}
	await("a new route", nl.RouteChange{})
	if err := a.Netlink().DeleteRoute(r); err != nil {
		t.Fatal(err)
	}
	await("a route that goes", nl.RouteChange{})
	a.IP("address add 10.0.9.1/24 dev eth0")
	await("a new address", nl.RouteChange{})
	for _, command := range []string{"add", "delete"} {
		a.IP("-6 route " + command + " local 2001:db8:a::/64 dev lo")
		await("a local route: "+command, nl.RouteChange{Local: true})
	}
	cancel()
	select {
	case err := <-ended:
		if err != context.Canceled {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(testTimeout):
		t.Error("does not end")
	}
}
