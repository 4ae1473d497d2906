package kernel

import (
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet/build"
)

// TestLongFrameFromAValidSource: with rp_filter, a frame that is longer than the MTU of the
// interface to its source says nothing about other packets from there.
func TestLongFrameFromAValidSource(t *testing.T) {
	t.Parallel()
	f := newFrames(t, openRules)
	f.setNIC(false, firewall.ReverseStrict)
	from, to := end(outsideAddr, 9), end(podA, 9)
	f.must(onFirstCPU(func() error {
		long, _, _ := f.sendData(from, to, build.UDP{}, 1600)
		short, _, _ := f.sendData(from, to, build.UDP{}, 100)
		if long != wentUp || short != redirected {
			t.Errorf("a frame of 1642 bytes: %d, one of 142: %d", long, short)
		}
		return nil
	}))
}
