package kernel

import (
	"testing"
	"time"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestPublishedSYNAgain: no translation may be made for a SYN to a published port, and it is
// refused. The client sends it again when one may, and gets through.
func TestPublishedSYNAgain(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	syn := build.TCP{Seq: 100, Flags: packet.FlagSYN, Window: 1000}
	var most uint32
	f.setConfig(func(c *weirConfig) { most, c.MaxNats = c.MaxNats, 0 })
	if code, _, _ := f.send(end(outsideAddr, 4000), end(hostAddr, 8080), syn); code != wasShot {
		t.Fatalf("without a translation: %d", code)
	}
	f.setConfig(func(c *weirConfig) { c.MaxNats = most })
	time.Sleep(50 * time.Millisecond) // for 10 ms no packet searches again
	code, _, to := f.send(end(outsideAddr, 4000), end(hostAddr, 8080), syn)
	if code != redirected || to != end(podA, 80) {
		t.Errorf("with a translation: %d to %s", code, to)
	}
}

// TestPublishedFlowAgain: a flow through a published port loses first its state, then its
// translation. It gets both again.
func TestPublishedFlowAgain(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	for _, gone := range []func(*entry) bool{
		func(x *entry) bool { return !x.translation() },
		(*entry).translation,
		func(*entry) bool { return false },
	} {
		code, _, to := f.send(end(outsideAddr, 4000), end(hostAddr, 8080), build.UDP{})
		if code != redirected || to != end(podA, 80) {
			t.Errorf("%d to %s", code, to)
		}
		f.must(f.engine.endWhere(gone))
	}
}
