package watch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/agent/clock"
)

const (
	// sampleEvery is how often the counters are read for the history.
	sampleEvery = 5 * time.Second
	// sampleShare bounds what that costs: after a sample, the sampler waits that many times as long
	// as it took.
	sampleShare = 100
)

// samplerWork is what the sampler has done.
type samplerWork struct {
	taken  atomic.Uint64
	failed atomic.Uint64 // the counters could not be read; the next sample has them
	nanos  atomic.Uint64 // time that it took
}

// sampleLoop reads the counters for the history until ctx ends. It has a goroutine of its own: what
// it waits for, an engine or a part that is busy, holds up no events.
func (o *Observer) sampleLoop(ctx context.Context) {
	wait := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		o.sample()
		took := time.Since(began)
		o.sampled.nanos.Add(uint64(took))
		wait = pauseAfter(took)
	}
}

// pauseAfter returns how long to wait after a sample.
func pauseAfter(took time.Duration) time.Duration {
	return max(sampleEvery-took, sampleShare*took)
}

// sample takes one sample. The engines' counters are read a part at a time, and no other lock is
// held meanwhile.
func (o *Observer) sample() {
	var c counts
	var err error
	if c.decisions, err = o.config.Engine.Decisions(); err == nil {
		c.rules, err = o.config.Engine.Rules()
	}
	if err == nil {
		pods, bad := o.config.Pods.List()
		c.pods, err = pods.Pods, bad
	}
	if err != nil {
		o.sampled.failed.Add(1)
		return
	}
	o.history.take(clock.Now(), c)
	o.sampled.taken.Add(1)
}
