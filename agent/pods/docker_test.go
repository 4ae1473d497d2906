package pods

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/pod"
)

// TestDockerCallsTheNode: the driver needs no socket of the API, and its errors keep their types.
func TestDockerCallsTheNode(t *testing.T) {
	d := dockerNode{New(Config{})}
	if _, err := d.Attach(t.Context(), pod.Spec{}); !errors.Is(err, errNone) {
		t.Errorf("attach without pods: %v, want %v", err, errNone)
	}
}

// TestDockerWaitsForThePods: while the pods of an earlier run are not taken over, dockerd is not
// served, and the error has the caller try again. Then it is. Without pods there is nothing to try.
func TestDockerWaitsForThePods(t *testing.T) {
	set := DefaultSettings()
	set.Docker = true
	problems := &problem.List{Log: slog.New(slog.DiscardHandler)}
	if stop, err := New(Config{Settings: set, Problems: problems}).ServeDocker(); err != nil ||
		stop() != nil || len(problems.All()) != 1 {
		t.Errorf("a node without pods: %v, problems %v", err, problems.All())
	}
	set.Ranges = []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}
	socket := filepath.Join(t.TempDir(), "plugins", "weir.sock")
	s := New(Config{Settings: set, Socket: socket, Problems: problems})
	if _, err := s.ServeDocker(); !errors.Is(err, errLater) {
		t.Errorf("before the pods are taken over: %v, want %v", err, errLater)
	}
	s.manager.Store(&pod.Manager{})
	stop, err := s.ServeDocker()
	if err != nil || len(problems.All()) != 0 {
		t.Fatal(err, problems.All())
	}
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Errorf("dockerd is not served: %v", err)
	} else {
		c.Close()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
