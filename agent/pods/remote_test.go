package pods

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/cni"
	"github.com/weirnet/weir/internal/unixsocket"
	"github.com/weirnet/weir/pod"
)

// TestRemoteTriesAgain: a runtime wants to detach while the pods of an earlier run are not taken
// over, while no node runs or while it does not answer. It learns that it may try again. What is
// wrong for good it does not.
func TestRemoteTriesAgain(t *testing.T) {
	set := DefaultSettings()
	set.Ranges = []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}
	s := New(Config{Settings: set, Dir: filepath.Join(t.TempDir(), "pods")})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/pods/detach", api.ChangeContext(s.Detach))
	mux.HandleFunc("POST /v1/pods/gc", api.ChangeContext(
		func(ctx context.Context, _ api.GC) (api.Done, error) {
			<-ctx.Done()
			return api.Done{}, ctx.Err()
		}))
	path := filepath.Join(t.TempDir(), "sock")
	r := NewRemote(api.NewClient(path))
	var passes interface{ Temporary() bool }
	if err := r.Detach(t.Context(), "c", "eth0"); !errors.As(err, &passes) {
		t.Errorf("without a node: %v", err)
	}
	l, err := unixsocket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: mux}
	go server.Serve(l)
	defer server.Close()
	if err := r.Detach(t.Context(), "c", "eth0"); !errors.Is(err, cni.ErrBusy) ||
		err.Error() != errLater.Error() {
		t.Errorf("before the pods are taken over: %v", err)
	}
	late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.GC(late, "net", nil); !errors.As(err, &passes) {
		t.Errorf("without an answer: %v", err)
	}
	s.closed = true
	s.manager.Store(new(pod.Manager))
	if err := r.Detach(t.Context(), "c", "eth0"); err == nil || errors.Is(err, cni.ErrBusy) {
		t.Errorf("while the node goes down: %v", err)
	}
}
