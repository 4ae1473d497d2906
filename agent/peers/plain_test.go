package peers

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/overlay"
)

// routing is a device that sets the routes of a peer without encryption, and no others.
type routing struct {
	device
	node *nstest.Node
	via  []nl.Route // without Dst; by the family of the peer's pods
	err  error      // of the next change
}

func (r *routing) SetPeer(p overlay.Peer) error { return r.ReplacePeer(p.Key, p) }

func (r *routing) ReplacePeer(_ overlay.Key, p overlay.Peer) error {
	if r.err != nil {
		return r.err
	}
	for i, route := range r.via {
		route.Dst = p.Pods[i]
		set := r.node.Netlink().ReplaceRoute
		if !p.Unencrypted {
			set = func(o nl.Route) error { return deleteRoute(r.node.Netlink(), o) }
		}
		if err := set(route); err != nil {
			return err
		}
	}
	return nil
}

// TestPlainRoutesOutliveChanges: the second routes to the pods of a peer without encryption, which
// outlive the agent, are there after a change that failed, and after one from encryption to none.
func TestPlainRoutesOutliveChanges(t *testing.T) {
	h := newHanging(t)
	lab := nstest.New(t)
	lab.Join(h.node, "wire", "10.98.0.1/24 fd98::1/64", lab.Node("other"), "wire",
		"10.98.0.2/24 fd98::2/64")
	link := h.node.Link("wire")
	d := &routing{node: h.node, via: []nl.Route{
		{Via: netip.MustParseAddr("10.98.0.2"), Link: link.Index},
		{Via: netip.MustParseAddr("fd98::2"), Link: link.Index, Metric: 1024}}}
	h.tunnel.Store(&tunnel{owns: &h.ownsName, device: d, stop: make(chan struct{})})
	pods := []netip.Prefix{netip.MustParsePrefix("10.88.2.0/24"),
		netip.MustParsePrefix("fd88:2::/64")}
	change := func(plain bool, fails error) {
		t.Helper()
		d.err = fails
		err := h.node.Do(func() error {
			return h.AddHost(api.AddPeer{Name: "b", Key: overlay.Key{1}.String(), Pods: pods,
				Plain: plain})
		})
		if !errors.Is(err, fails) {
			t.Fatalf("plain %v: %v", plain, err)
		}
	}
	kept := func(when string, want ...string) {
		t.Helper()
		all, err := h.node.Netlink().Routes(0)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range all {
			if slices.Contains(pods, r.Dst) && r.Metric == blackholeMetric {
				got = append(got, r.Dst.String()+" "+r.Via.String())
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: the routes behind the device's are %v, want %v", when, got, want)
		}
	}
	plain := []string{"10.88.2.0/24 10.98.0.2", "fd88:2::/64 fd98::2"}
	closed := []string{"10.88.2.0/24 invalid IP", "fd88:2::/64 invalid IP"}
	change(true, nil)
	kept("added", plain...)
	change(false, errors.New("refused"))
	kept("a change that failed", plain...)
	change(false, nil)
	kept("encrypted", closed...)
	change(true, errors.New("refused"))
	kept("a change back that failed", closed...)
	change(true, nil)
	kept("without encryption again", plain...)
	h.tunnel.Store(nil)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
