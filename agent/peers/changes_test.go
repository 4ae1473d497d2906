package peers

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/overlay"
)

// refusing is a device that does not replace a peer.
type refusing struct {
	device
	err error
}

func (r *refusing) ReplacePeer(overlay.Key, overlay.Peer) error { return r.err }

// TestDeviceInDoubtGoes: a change that the device refuses changes nothing. If the device could not
// undo what it did, the tunnel is made again.
func TestDeviceInDoubtGoes(t *testing.T) {
	h := newHanging(t)
	h.record("b", 1, "10.88.2.0/24")
	refused := errors.New("refused")
	for _, c := range []struct {
		err  error
		goes bool
	}{{refused, false}, {errors.Join(refused, overlay.ErrNotUndone), true}} {
		tun := &tunnel{owns: &h.ownsName, device: &refusing{err: c.err}, stop: make(chan struct{})}
		h.tunnel.Store(tun)
		err := h.node.Do(func() error {
			return h.AddHost(api.AddPeer{Name: "b", Key: overlay.Key{2}.String(),
				Pods: []netip.Prefix{netip.MustParsePrefix("10.88.3.0/24")}})
		})
		if !errors.Is(err, refused) {
			t.Errorf("%v: the change returns %v", c.err, err)
		}
		if goes := h.tunnel.Load() == nil; goes != c.goes {
			t.Errorf("%v: the device goes: %v", c.err, goes)
		}
		select {
		case <-tun.stop:
		default:
			if c.goes {
				t.Errorf("%v: the tunnel was not closed", c.err)
			}
		}
		if peer := h.byName["b"]; peer.Key != (overlay.Key{1}) || len(h.Ranges()) != 1 {
			t.Errorf("%v: the record has %+v and the ranges %v", c.err, peer, h.Ranges())
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
