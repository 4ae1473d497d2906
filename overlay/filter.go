package overlay

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirnet/weir/firewall"
)

// Filter decides about a batch of IP packets and sets pass[i] to whether packets[i] may pass. It is
// called by several goroutines at once. The packets are valid during the call only. In a hook of
// direction In, Recv is the Device; in one of direction Out, Xmit is. A packet that goes out may be
// longer than the MTU. It is then a GSO packet of the kernel, which will be cut into segments that
// differ in sequence numbers and lengths. For a packet that will be cut, or was coalesced, segments
// has how many bytes follow the headers in each segment, else 0. Of a packet that was coalesced,
// only the headers are its own (Quotable).
type Filter func(hook firewall.Hook, packets [][]byte, segments []uint16, pass []bool)

// Quotable returns the part of a packet that may be shown to others: the whole packet, or only the
// headers if it was coalesced. The bytes after them belong to other packets, also of other peers.
func Quotable(hook firewall.Hook, packet []byte, segment uint16) []byte {
	if hook.Dir == firewall.Out || segment == 0 {
		return packet
	}
	return packet[:segmentOf(packet).header]
}

// Worker evaluates batches for one goroutine, as the soft engine's workers do.
type Worker interface {
	EvaluateBatch(in *firewall.Input, packets [][]byte, out []firewall.Verdict)
}

// FilterBy returns a Filter that asks w, one batch at a time. The clock is the engine's. Refused
// packets are given to refused, unless that is nil, so that it can send what v.Answer asks for,
// with what may be quoted of them. It is called while the worker is locked and must not block.
func FilterBy(w Worker, clock func() time.Duration,
	refused func(hook firewall.Hook, v firewall.Verdict, packet, quote []byte)) Filter {
	var mu sync.Mutex
	var verdicts []firewall.Verdict
	var in firewall.Input
	return func(hook firewall.Hook, packets [][]byte, segments []uint16, pass []bool) {
		mu.Lock()
		defer mu.Unlock()
		if cap(verdicts) < len(packets) {
			verdicts = make([]firewall.Verdict, max(len(packets), batchSize))
		}
		out := verdicts[:len(packets)]
		in = firewall.Input{Hook: hook, Now: clock(), Random: rand.Uint32(),
			Segments: segments}
		w.EvaluateBatch(&in, packets, out)
		for i := range out {
			if pass[i] = out[i].Pass; !pass[i] && refused != nil {
				refused(hook, out[i], packets[i], Quotable(hook, packets[i], segments[i]))
			}
		}
	}
}
