package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/pod"
)

// TestAttachedStays: an attach that asks for what an attached pod does not have says so, and does
// not look as if the pod had it now.
func TestAttachedStays(t *testing.T) {
	port := pod.Publish{Proto: packet.ProtoTCP, HostPort: 8080, Port: 80}
	p := api.Pod{Name: "web", MTU: 1500, Addrs: []netip.Addr{netip.MustParseAddr("10.88.0.2")},
		Publish: []pod.Publish{port}, Labels: map[string]string{"app": "web"}}
	for want, asked := range map[string]pod.Spec{
		"": {Name: "web", MTU: 1500, Addrs: p.Addrs, Publish: p.Publish,
			Labels: p.Labels},
		"--name changes nothing": {Name: "db"},
		"--mtu changes nothing":  {MTU: 1400},
		"--publish changes nothing": {
			Publish: []pod.Publish{port, {Proto: packet.ProtoUDP, HostPort: 8080, Port: 80}}},
		"--addr changes nothing":   {Addrs: []netip.Addr{netip.MustParseAddr("10.88.0.3")}},
		`its labels are "app=web"`: {Labels: map[string]string{"app": "db"}},
	} {
		err := checkAttached(&p, &asked)
		if want == "" && err != nil || want != "" && (err == nil ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", asked, err, want)
		}
	}
	if err := checkAttached(&p, new(pod.Spec)); err != nil {
		t.Error(err)
	}
}
