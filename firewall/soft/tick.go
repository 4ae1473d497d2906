package soft

import (
	"time"

	"github.com/weirnet/weir/flow"
)

// sweepTicks is how many calls of Tick look at every state once: at 100 calls in a second, ten
// seconds.
const sweepTicks = 1024

// Tick gives the memory of expired states back, a small fixed piece of the worker's shard at a
// time, and hands out the keepalive probes that are due and the resets of connections that Cut has
// ended. Call it about 100 times in a second. Verdicts never wait for it: deadlines hold at every
// look-up.
//
// send, which may be nil, gets the packets to be sent: a probe for each end of an established TCP
// state that is in the last 20 seconds of its life, every ten seconds or so. An end that still
// lives answers, and its answer keeps the state. Both ends of an established TCP connection that
// was cut get a reset. A state that merely expires, or whose rule is gone, resets nothing: other
// rules may still let the connection live, and a laptop that sleeps wants it back. A packet is
// valid during the call only.
func (w *Worker) Tick(now time.Duration, send func(Probe)) {
	if !w.kept {
		w.shard.hold()
		defer w.shard.release()
	}
	s := w.shard
	var alive func(*entry, *flow.State)
	if send != nil {
		k := keeper{now: int64(now), send: send, life: &s.cfg.opts.Timeouts}
		alive = k.alive
		s.handOut(send)
	}

	s.sweep(&s.grown, (len(s.grown.tags)+sweepTicks-1)/sweepTicks, int64(now), alive)
	s.sweep(&s.embryo, (len(s.embryo.tags)+sweepTicks-1)/sweepTicks, int64(now), nil)
}

// Sweep ends every expired state of all workers at once. It is for tests and tools: it takes as
// long as there are states.
func (e *Engine) Sweep(now time.Duration) {
	for _, s := range e.shards {
		s.hold()
		for _, t := range []*table{&s.grown, &s.embryo} {
			s.sweep(t, len(t.tags), int64(now), nil)
		}
		s.release()
	}
}
