package test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// TestTunnelBackend: "auto" takes the kernel's WireGuard where there is one, and otherwise ours,
// and the status says why; "kernel" makes no tunnel without one and says what to do. Without a
// setting the tunnel is ours.
func TestTunnelBackend(t *testing.T) {
	nstest.RequireRoot(t)
	t.Parallel()
	h := newPodHostWith(t, podSettings+"[overlay]\n", "add allow ip from any to any\n")
	err := h.outside.Netlink().AddWireGuard("probe", 1420)
	if err != nil && !errors.Is(err, nl.ErrNoWireGuard) {
		t.Fatal(err)
	}
	there := err == nil
	tunnel := func() (s api.Status) {
		nstest.Eventually(t, "the node says what became of the tunnel", func() bool {
			s = api.Status{}
			out, _, _ := h.try("status", "-j")
			unmarshal(t, out, &s)
			return s.Tunnel != nil || len(s.Problems) > 0
		})
		return s
	}
	again := func(backend string) api.Status {
		h.stop()
		h.file("etc/weir/weir.toml", podSettings+"[overlay]\nbackend = \""+backend+"\"\n")
		h.start("--rules", h.root+"/etc/weir/rules")
		return tunnel()
	}
	if s := tunnel(); s.Tunnel == nil || s.Tunnel.Backend != "user" || s.Tunnel.Reason != "" {
		t.Errorf("without a setting: %+v, %+v", s.Tunnel, s.Problems)
	}
	s := again("auto")
	switch {
	case s.Tunnel == nil || !s.Healthy:
		t.Errorf("auto: %+v", s.Problems)
	case there && (s.Tunnel.Backend != "kernel" || s.Tunnel.Reason != ""):
		t.Errorf("auto, with the module: %+v", s.Tunnel)
	case !there && (s.Tunnel.Backend != "user" ||
		!strings.Contains(s.Tunnel.Reason, "the kernel has no WireGuard")):
		t.Errorf("auto, without the module: %+v", s.Tunnel)
	}
	if out := h.weir("status"); there == strings.Contains(out, "not the kernel's: ") {
		t.Errorf("weir status:\n%s", out)
	}
	if s = again("kernel"); there {
		if s.Tunnel == nil || s.Tunnel.Backend != "kernel" {
			t.Errorf("kernel, with the module: %+v, %+v", s.Tunnel, s.Problems)
		}
		return
	}
	if s.Tunnel != nil || s.Healthy || len(s.Problems) != 1 ||
		!strings.Contains(s.Problems[0].What, "no tunnel to other nodes") ||
		!strings.Contains(s.Problems[0].Advice, "modprobe wireguard") {
		t.Errorf("kernel, without the module: %+v, %+v", s.Tunnel, s.Problems)
	}
	if _, err := h.host.Netlink().LinkByName("weir0"); !errors.Is(err, nl.ErrNoLink) {
		t.Errorf("a tunnel that cannot be made leaves an interface: %v", err)
	}
}
