package kernel

import (
	"testing"
	"time"

	"github.com/weirnet/weir/packet"
)

// TestPublishedSYNAgain: there is no room for the translation of a SYN to a published port, and it
// is refused. The client sends it again when there is room, and gets through.
func TestPublishedSYNAgain(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	syn := packet.TCP{Seq: 100, Flags: packet.FlagSYN, Window: 1000}
	var room uint32
	f.setConfig(func(c *weirConfig) { room, c.MaxNats = c.MaxNats, 0 })
	if code, _, _ := f.send(end(outsideAddr, 4000), end(hostAddr, 8080), syn); code != wasShot {
		t.Fatalf("without room: %d", code)
	}
	f.setConfig(func(c *weirConfig) { c.MaxNats = room })
	time.Sleep(50 * time.Millisecond) // for 10 ms no packet searches again
	code, _, to := f.send(end(outsideAddr, 4000), end(hostAddr, 8080), syn)
	if code != redirected || to != end(podA, 80) {
		t.Errorf("with room: %d to %s", code, to)
	}
}
