package agent

import (
	"errors"
	"testing"

	"github.com/weirnet/weir/cni"
)

// TestDockerCallsTheNode: the driver needs no socket of the API, and its errors keep their types.
func TestDockerCallsTheNode(t *testing.T) {
	d := dockerNode{node: &Node{}}
	if _, err := d.Attach(t.Context(), cni.Request{}); !errors.Is(err, errNoPods) {
		t.Errorf("attach without pods: %v, want %v", err, errNoPods)
	}
}
