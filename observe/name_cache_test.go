package observe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// TestResolvedNeverWaits: however long a look-up takes, the view continues at once; names appear
// when they are found.
func TestResolvedNeverWaits(t *testing.T) {
	release := make(chan struct{}) // no look-up ends before all events have passed
	var running, most atomic.Int32
	lookup := func(ctx context.Context, a netip.Addr) (string, error) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		select {
		case <-release:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if a.As4()[3] == 9 {
			return "ignored", errors.New("no such name")
		}
		return fmt.Sprintf("host-%d.example", a.As4()[3]), nil
	}
	r := NewNameCache(t.Context(), lookup)
	for i := range 20000 {
		if name := r.Name(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})); name != "" {
			t.Fatalf("a name before any was found: %q", name)
		}
	}
	if n := most.Load(); n > lookupsMost {
		t.Errorf("%d look-ups at once", n)
	}
	close(release)
	e := Event{To: "pod:web"}
	e.Src, e.Dst = netip.MustParseAddrPort("10.0.0.7:4000"), netip.MustParseAddrPort("10.0.0.8:80")
	nstest.Eventually(t, "the name is found", func() bool {
		r.SetNames(&e)
		return e.From != ""
	})
	if e.From != "host-7.example" || e.To != "pod:web" {
		t.Errorf("from %q to %q", e.From, e.To)
	}
	nine := netip.MustParseAddr("10.0.0.9")
	r.Name(nine)
	time.Sleep(20 * time.Millisecond)
	if name := r.Name(nine); name != "" {
		t.Errorf("a failed look-up gives %q", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.names) > resolvedMost {
		t.Errorf("%d names are kept", len(r.names))
	}
}
