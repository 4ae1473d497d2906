package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirnet/weir/internal/nl"
)

// TestLargestDatagramsToOwnPorts: the largest datagrams of IPv6, which do not fit the loopback's
// MTU, reach a published port of the host from the host, and come back. They do so at a port of the
// host's own, too (the control).
func TestLargestDatagramsToOwnPorts(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.serve(v.a.Node, 80)
	v.serve(v.host, 81)
	v.publish(8080, 80)
	for _, c := range []struct {
		address string
		sizes   []int
	}{
		{"[2001:db8::1]", []int{65487, 65488, 65489, 65500, 65527}},
		{"[::1]", []int{65488, 65489, 65527}},
		{"127.0.0.1", []int{65507}},
	} {
		for _, port := range []int{81, 8080} {
			for _, size := range c.sizes {
				t.Run(fmt.Sprint(c.address, ":", port, " ", size), func(t *testing.T) {
					u, err := v.host.DialContext(context.Background(), "udp",
						fmt.Sprint(c.address, ":", port))
					if err != nil {
						t.Fatal(err)
					}
					defer u.Close()
					text := bytes.Repeat([]byte("much to say "), size/12+1)[:size]
					if _, err := u.Write(text); err != nil {
						t.Fatal(err)
					}
					u.SetReadDeadline(time.Now().Add(testTimeout))
					b := make([]byte, 1<<16)
					if n, err := u.Read(b); err != nil || !bytes.Equal(b[:n], text) {
						t.Errorf("%d bytes came back: %v", n, err)
					}
				})
			}
		}
	}
}

// TestLeftHookOfTheLoopback: an engine dies after the last published port has gone and before it
// has let go of the loopback's hook. The next one publishes ports, and one hook is left.
func TestLeftHookOfTheLoopback(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.serve(v.a.Node, 80)
	v.publish(8080, 80)
	hook := v.engine.local.link
	if hook == nil {
		t.Skip("without tcx the next filter takes the place of the one before")
	}
	v.engine.local = nil // it is not let go of
	v.must(v.host.Do(func() error { return v.engine.SetPublished(nil) }))
	v.must(errors.Join(hook.Close(), v.engine.Close()))
	v.open()
	v.must(v.engine.SetInterfaces(v.ifs))
	v.must(v.engine.Load(compile(t, openRules)))
	for _, p := range []*podNode{v.a, v.b} {
		v.must(v.host.Do(func() error { return v.engine.SetEndpoint(p.endpoint) }))
	}
	v.publish(8080, 80)
	v.must(reach(v.host, "192.0.2.1:8080"))
	v.must(v.host.Do(func() error {
		at, err := link.QueryPrograms(link.QueryOptions{Target: loopback,
			Attach: ebpf.AttachTCXEgress})
		if err == nil && len(at.Programs) != 1 {
			t.Errorf("%d programs at the loopback", len(at.Programs))
		}
		return err
	}))
}

// TestRemovedHookOfTheLoopback: where another program removes the hook, KeepLocal puts it back.
func TestRemovedHookOfTheLoopback(t *testing.T) {
	t.Parallel()
	for _, filters := range []bool{false, true} {
		v := newCluster(t, openRules)
		v.serve(v.a.Node, 80)
		v.engine.noTCX = filters
		v.publish(8080, 80)
		keep := func(want bool) {
			t.Helper()
			v.must(v.host.Do(func() error {
				removed, err := v.engine.KeepLocal()
				if removed != want {
					t.Errorf("filters %v: removed %v, want %v", filters, removed, want)
				}
				return err
			}))
		}
		keep(false)
		if l := v.engine.local.link; l != nil {
			v.must(l.Detach())
		} else {
			v.host.Run("tc", "qdisc", "del", "dev", "lo", "clsact")
		}
		if err := exchange(v.host, "192.0.2.1:8080"); err == nil {
			t.Errorf("filters %v: a port is reached without the hook", filters)
		}
		keep(true)
		keep(false)
		v.must(exchange(v.host, "192.0.2.1:8080"))
	}
}

// TestFilterOfTheLoopbackThatStays: where the filter of the loopback could not be deleted when the
// last published port went, its pin stays, and the next call deletes both.
func TestFilterOfTheLoopbackThatStays(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.engine.noTCX = true
	v.publish(8080, 80)
	pin := filepath.Join(v.engine.dir, localFilter)
	unpublish := func() error { return v.engine.SetPublished(nil) }
	if err := withoutNetAdmin(t, v.host, unpublish); err == nil {
		t.Error("the filter was deleted without the capability")
	}
	if _, err := os.Stat(pin); err != nil {
		t.Error(err)
	}
	v.must(v.host.Do(unpublish))
	if _, err := os.Stat(pin); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pin is still there: %v", err)
	}
	v.must(v.host.Do(func() error {
		f, err := v.host.Netlink().FilterAt(loopback, nl.BeforeEgress)
		if f != (nl.Filter{}) {
			t.Errorf("filter %+v is left", f)
		}
		return err
	}))
}

// TestLoopbackGuardedAndPublished: the loopback is guarded, and ports are published. Neither hook
// takes the place of the other, whichever came first. What the host sends to its published port is
// translated first, so rules at egress of the loopback do not see it.
func TestLoopbackGuardedAndPublished(t *testing.T) {
	t.Parallel()
	const rules = "add reset tcp from any to any 99,8080 out via lo\n" + openRules
	for _, filters := range []bool{false, true} {
		v := newCluster(t, rules)
		v.serve(v.a.Node, 80)
		v.serve(v.host, 99)
		v.engine.noTCX = filters
		guard := func() {
			v.must(v.host.Do(func() error { _, err := v.engine.Attach(loopback); return err }))
		}
		check := func(when string, guarded, published bool) {
			t.Helper()
			if err := exchange(v.host, "127.0.0.1:99"); (err != nil) != guarded {
				t.Errorf("filters %v, %s: a port that rules refuse: %v", filters, when, err)
			}
			if err := exchange(v.host, "192.0.2.1:8080"); (err == nil) != published {
				t.Errorf("filters %v, %s: the published port: %v", filters, when, err)
			}
		}
		guard()
		v.publish(8080, 80)
		check("guarded, then published", true, true)
		v.must(v.host.Do(func() error { return v.engine.SetPublished(nil) }))
		check("no longer published", true, false)
		v.must(v.host.Do(func() error { return v.engine.Detach(loopback) }))
		v.publish(8080, 80)
		check("published", false, true)
		guard()
		check("published, then guarded", true, true)
		v.must(v.host.Do(func() error { return v.engine.Detach(loopback) }))
		check("no longer guarded", false, true)
	}
}
