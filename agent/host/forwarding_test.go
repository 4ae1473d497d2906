package host

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/nstest"
)

// TestForwardingThatWasDisabled: if the host is to be a router, and another program ends that, the
// status says so until it is one again.
func TestForwardingThatWasDisabled(t *testing.T) {
	node := nstest.New(t).Node("host")
	r := NewRouter(filepath.Join(t.TempDir(), "sysctls.json"))
	list := &problem.List{Log: slog.New(slog.DiscardHandler)}
	step := func(what string, change func() error, want ...string) {
		t.Helper()
		var all []api.Problem
		err := node.Do(func() error {
			err := change()
			r.CheckForwarding(list)
			all = list.All()
			return err
		})
		if err != nil || len(all) != len(want) {
			t.Fatalf("%s: problems %v, %v", what, all, err)
		}
		for i, key := range want {
			if !strings.HasPrefix(all[i].What, key+" was set to 0") {
				t.Errorf("%s: problem %v", what, all[i])
			}
		}
	}
	const key4, key6 = "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"
	set := func(name, value string) func() error {
		return func() error { return setSysctl(name, value) }
	}
	step("no router", func() error { return nil })
	step("a router for IPv4", func() error { return r.EnableForwarding(true, false) })
	step("disabled", set(forwarding4, "0"), key4)
	step("enabled", set(forwarding4, "1"))
	step("a router for both", func() error { return r.EnableForwarding(true, true) })
	step("disabled for IPv6", set(forwarding6("all"), "0"), key6)
	step("enabled for IPv6", set(forwarding6("all"), "1"))
}
