package soft

import (
	"time"

	"github.com/weirnet/weir/flow"
)

// sweepTicks is how many calls of Tick visit every state once: at 100 calls per second, ten
// seconds.
const sweepTicks = 1024

// Tick frees expired states, a small fixed piece of the worker's shard at a time. It sends the
// keepalive probes that are due, and the resets of connections that DeleteStates has ended. Call it
// about 100 times per second. Verdicts never wait for it: deadlines hold at every lookup.
//
// send, which may be nil, gets the packets to be sent. There is a probe for each end of an
// established TCP state that is in the last 20 seconds of its life, every ten seconds or so. An end
// that still lives answers, and its answer keeps the state. Both ends of an established TCP
// connection that DeleteStates has ended get a reset. A state that merely expires, or whose rule is
// gone, resets nothing: other rules may still pass the connection, and a laptop that wakes up still
// has it open. A packet is valid during the call only.
func (w *Worker) Tick(now time.Duration, send func(Probe)) {
	if !w.holding {
		w.shard.hold()
		defer w.shard.release()
	}
	s := w.shard
	var alive func(*entry, *flow.State)
	if send != nil {
		k := keepaliveSender{now: now, send: send, life: &s.cfg.opts.Timeouts}
		alive = k.alive
		s.sendResets(send)
	}

	s.sweep(&s.established, (len(s.established.tags)+sweepTicks-1)/sweepTicks, now, alive)
	s.sweep(&s.halfOpen, (len(s.halfOpen.tags)+sweepTicks-1)/sweepTicks, now, nil)
}

// Sweep ends every expired state of all workers at once. It is for tests and tools: it takes as
// long as there are states.
func (e *Engine) Sweep(now time.Duration) {
	for _, s := range e.shards {
		s.hold()
		for _, t := range []*table{&s.established, &s.halfOpen} {
			s.sweep(t, len(t.tags), now, nil)
		}
		s.release()
	}
}
