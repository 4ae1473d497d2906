package pods

import (
	"errors"
	"testing"

	"github.com/weirnet/weir/pod"
)

// TestDockerCallsTheNode: the driver needs no socket of the API, and its errors keep their types.
func TestDockerCallsTheNode(t *testing.T) {
	d := dockerNode{New(Config{})}
	if _, err := d.Attach(t.Context(), pod.Spec{}); !errors.Is(err, errNone) {
		t.Errorf("attach without pods: %v, want %v", err, errNone)
	}
}
