package kernel

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet/build"
)

// association is an SCTP association between a client outside and a pod.
type association struct {
	*frames
	client, pod netip.AddrPort
}

// says sends a packet with one chunk, of the client or of the pod, which has to pass or not. INIT
// and INIT ACK ask for a tag.
func (a *association) says(what string, passes, client bool, tag uint32, chunk, bits uint8,
	asks uint32) {
	a.t.Helper()
	from, to := a.pod, a.client
	if client {
		from, to = to, from
	}
	const at = 14 + 20 + 12 // of the chunk in the frame
	by, frame := a.frame(from, to, build.SCTP{SrcPort: from.Port(), DstPort: to.Port(),
		VTag: tag}, 20)
	frame[at], frame[at+1], frame[at+3] = chunk, bits, 20
	binary.BigEndian.PutUint32(frame[at+4:], asks)
	if code, _ := a.run(a.engine.objects.WeirIn, 0, by.index, frame); (code != wasShot) != passes {
		a.t.Errorf("%s: %d", what, code)
	}
}

// TestTagsOfMigratedAssociations: the verification tags of an association that opens and restarts
// between two copies are known to the next engine. A blind ABORT does not end it, a true one does.
func TestTagsOfMigratedAssociations(t *testing.T) {
	t.Parallel()
	const data, begin, answer, abort, cookie, bitT = 0, 1, 2, 6, 10, 1
	f := newFrames(t, openRules)
	a := association{f, end(outsideAddr, 5000), end(podA, 3868)}
	long := func(c *weirConfig) {
		c.LifeSyn, c.LifeEstablished = int64(time.Hour), int64(time.Hour)
	}
	f.setConfig(long)
	a.says("INIT", true, true, 0, begin, 0, 7)
	before := f.replaceBegin(openRules)
	next := f.engine
	f.setConfig(long)
	f.engine = before
	a.says("INIT ACK", true, false, 7, answer, 0, 9)
	a.says("COOKIE ECHO", true, true, 9, cookie, 0, 0)
	next.mu.Lock()
	f.must(next.followLocked())
	a.says("INIT again", true, true, 0, begin, 0, 5)
	f.must(next.catchUpLocked(true))
	next.mu.Unlock()

	f.engine = next
	a.says("data with the tag of the first INIT", true, false, 7, data, 0, 0)
	a.says("INIT ACK with that of the second", true, false, 5, answer, 0, 11)
	a.says("data with another", false, false, 6, data, 0, 0)
	a.says("ABORT of the client without a tag", false, true, 0, abort, 0, 0)
	a.says("ABORT of the pod without a tag", false, false, 0, abort, bitT, 0)
	if s, _ := f.stateOf(a.client, a.pod).state(); s.Phase() != flow.PhaseEstablished {
		t.Errorf("the association is %s", s.Phase())
	}
	a.says("ABORT of the pod with the client's tag", true, false, 9, abort, bitT, 0)
	if s, _ := f.stateOf(a.client, a.pod).state(); s.Phase() != flow.PhaseReset {
		t.Errorf("the association is %s after an ABORT", s.Phase())
	}
	f.replaceEnd()
}
