package watch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
)

// record feeds the journal and top until ctx ends.
func (o *Observer) record(ctx context.Context) error {
	if o.journal == nil {
		o.tick(ctx)
		return nil
	}
	o.mu.Lock()
	sub := o.sub
	o.mu.Unlock()
	defer sub.Close()
	var ticks sync.WaitGroup
	ticks.Go(func() { o.tick(ctx) })
	for {
		events, lost, err := sub.Next(ctx)
		if err != nil {
			break
		}
		o.mu.Lock()
		o.takeLocked(events, lost)
		o.mu.Unlock()
	}
	ticks.Wait()
	if err := o.journal.Close(); err != nil {
		o.config.Log.Error("cannot write the last events", "err", err)
	}
	return nil
}

// tick does what is due every second.
func (o *Observer) tick(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		o.clock.set()
		o.refreshNames()
		if now, err := o.engineLost(); err == nil {
			o.mu.Lock()
			more := now - o.lost
			if now < o.lost {
				more = now
			}
			o.lost = now
			o.mu.Unlock()
			o.hub.AddLost(more)
		}
		if o.journal != nil {
			o.kept(o.journal.Flush())
		}
	}
}

// takeLocked puts events into top and the journal.
func (o *Observer) takeLocked(events []firewall.Event, lost uint64) {
	now := time.Now()
	for i := range events {
		at := o.clock.wall(events[i].Time)
		o.top.Add(&events[i], at)
		if o.journal == nil {
			continue
		}
		if !o.limit.AllowN(now, 1) {
			o.skipped++
			continue
		}
		o.skipped += o.journal.TakeLost()
		e := o.names.Event(&events[i])
		e.Lost, o.skipped = o.skipped, 0
		o.keep(&e)
	}
	o.skipped += lost
	if lost > 0 && o.journal != nil && o.limit.AllowN(now, 1) {
		e := observe.Event{At: now, Lost: o.skipped}
		o.skipped = 0
		o.keep(&e)
	}
}

// keep writes an event. The journal counts a failure and reports it at the next tick.
func (o *Observer) keep(e *observe.Event) {
	if o.journal.Append(e) != nil {
		o.skipped += e.Lost // the gap that it would have recorded
	}
}

// kept updates the problem that the history is not kept.
func (o *Observer) kept(err error) {
	if err != nil {
		o.config.Problems.Set("the history of events", "events are not kept: "+err.Error(),
			"free space on the disk; Weir tries again")
		return
	}
	o.config.Problems.Solved("the history of events")
}

// Past returns the events that are kept, from a time on. It must be iterated, once.
func (o *Observer) Past(since time.Time) (iter.Seq[observe.Event], error) {
	if o.journal == nil {
		return nil, errNoHistory
	}
	return o.journal.Since(since)
}

var errNoHistory = errors.New("this node keeps no history (settings: [observe] history)")

// listen subscribes a reader. With a since that is not zero it gets the events from then on first,
// each exactly once.
func (o *Observer) listen(since time.Time) (past func(func(observe.Event) bool),
	sub *observe.Subscription, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case since.IsZero():
		return nil, o.hub.Subscribe(readerQueue), nil
	case o.journal == nil:
		return nil, nil, errNoHistory
	}
	waiting, lost, sub := o.hub.DrainAndSubscribe(o.sub, readerQueue)
	o.takeLocked(waiting, lost)
	seq, err := o.journal.Since(since)
	if err != nil {
		sub.Close()
		return nil, nil, fmt.Errorf("read the events of the past: %w", err)
	}
	// What the limit of the journal left out is recorded with the next event, and this reader gets
	// that one without the journal.
	o.skipped += o.journal.TakeLost()
	if o.skipped == 0 {
		return seq, sub, nil
	}
	left := observe.Event{At: time.Now(), Lost: o.skipped}
	return func(yield func(observe.Event) bool) {
		for e := range seq {
			if !yield(e) {
				return
			}
		}
		yield(left)
	}, sub, nil
}
