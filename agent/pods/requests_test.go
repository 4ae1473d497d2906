package pods

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/pod"
)

// TestEndOfChanges: the end of changes waits for a request that is under way. Those that come then
// are refused and leave nothing, from the API and from dockerd.
func TestEndOfChanges(t *testing.T) {
	set := DefaultSettings()
	set.Ranges = []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}
	dir := filepath.Join(t.TempDir(), "pods")
	s := New(Config{Settings: set, Dir: dir})
	s.manager.Store(&pod.Manager{})
	_, end, err := s.change()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		s.EndChanges()
		close(ended)
	}()
	nstest.Eventually(t, "changes are refused", func() bool {
		_, end, err := s.change()
		if err == nil {
			end()
		}
		return err != nil
	})
	for name, request := range map[string]func(context.Context) error{
		"attach": func(ctx context.Context) error {
			_, err := s.Attach(ctx, pod.Spec{Name: "web", Container: "c", IfName: "eth0"})
			return err
		},
		"detach": func(ctx context.Context) error {
			_, err := s.Detach(ctx, api.Detach{Container: "c"})
			return err
		},
		"label": func(ctx context.Context) error {
			_, err := s.Label(ctx, api.Label{Container: "c"})
			return err
		},
		"gc": func(ctx context.Context) error {
			_, err := s.GC(ctx, api.GC{Network: "pods"})
			return err
		},
		"detach of dockerd": func(ctx context.Context) error {
			return dockerNode{s}.Detach(ctx, "c", "eth0")
		},
	} {
		if err := request(t.Context()); !errors.Is(err, errClosed) {
			t.Errorf("%s: %v, want %v", name, err, errClosed)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("there is a record")
	}
	select {
	case <-ended:
		t.Error("the end did not wait for the request that was under way")
	case <-time.After(50 * time.Millisecond):
	}
	end()
	<-ended
}
