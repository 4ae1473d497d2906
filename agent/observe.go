package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
)

const (
	// readerQueue is how many events wait for a reader before it misses some: 150 bytes each, used
	// only while they wait.
	readerQueue = 1 << 15
	// journalRate is how many events in a second are kept on disk. More are recorded as a gap.
	journalRate = 2000
	// journalBytes bounds the journal: about 100,000 events.
	journalBytes = 32 << 20
	// topPairs is how many pairs of endpoints are counted separately.
	topPairs = 4096
)

// observer turns the engine's events into views. It is the only permanent subscriber, unless the
// settings want no history.
type observer struct {
	hub   observe.Hub
	names observe.Names
	log   *slog.Logger
	clock wallClock
	began time.Time
	// refresh, if set, looks at the names of addresses again: they change within a second.
	refresh   func()
	addresses atomic.Pointer[addressNames]
	// journal is nil without history; then nothing is recorded, and top knows of no refusals.
	journal *observe.Journal
	// kept is called once a second with the error that keeps events off the disk, or nil.
	kept func(error)

	mu      sync.Mutex   // its place in the lock order: doc.go
	sub     *observe.Sub // guarded by mu; what the journal and top are fed by
	top     *observe.Top // guarded by mu
	budget  int          // guarded by mu; events that may still be written in this second
	skipped uint64       // guarded by mu; events that were not written since the last one
	lost    uint64       // guarded by mu; what the engine has lost so far
}

// wallClock turns times of the engine's clock into wall time.
type wallClock struct{ offset atomic.Int64 }

// set compares the clocks. Of three times the shortest counts: a thread that loses the processor in
// between compares nothing.
func (c *wallClock) set() {
	shortest, offset := int64(math.MaxInt64), int64(0)
	for range 3 {
		before := clock.Now()
		wall := time.Now().UnixNano()
		if took := clock.Now() - before; took < shortest {
			shortest, offset = took, wall-before-took/2
		}
	}
	c.offset.Store(offset)
}

func (c *wallClock) wall(ns int64) time.Time { return time.Unix(0, ns+c.offset.Load()) }

// newObserver continues the journal in dir, if a history is wanted.
func newObserver(dir string, history time.Duration, log *slog.Logger) *observer {
	o := &observer{top: observe.NewTop(topPairs), log: log, began: time.Now(), budget: journalRate}
	o.clock.set()
	o.names.Wall = o.clock.wall
	if history <= 0 {
		return o
	}
	// Flush reports a failure and retries
	o.journal, _ = observe.OpenJournal(dir, history, journalBytes)
	return o
}

// observe starts everything that subscribes to the engine. stop ends it. Without space for the
// journal there is no history; the rest works.
func (n *Node) observe(ctx context.Context) (stop func() error) {
	o := newObserver(n.config.Paths.eventsDir(), n.config.Settings.History, n.log)
	o.kept = n.eventsKept
	n.nameThings(o)
	o.hub.Subscribed = func(on bool) {
		var kinds []firewall.EventKind
		if on {
			kinds = eventKinds[:]
		}
		if err := n.engine.Subscribe(kinds...); err != nil {
			n.log.Error("cannot listen to events", "err", err)
		}
	}
	n.observer = o
	n.captures.capture = n.engine.Capture
	// before the first event, which may be waiting in the kernel since there was no agent
	if o.journal != nil {
		o.sub = o.hub.Subscribe(readerQueue)
	}
	ctx, cancel := context.WithCancel(ctx)
	var watched sync.WaitGroup
	watched.Go(func() {
		n.retry.Run(ctx, "events are not read and idle connections are not probed", "weir doctor",
			func(ctx context.Context) error {
				return n.engine.Watch(ctx, func(e firewall.Event) { o.hub.Publish(&e) })
			})
	})
	lost := func() (uint64, error) {
		s, err := n.engine.Stats()
		if err == nil {
			n.watchCookies(&s)
		}
		return s.Lost, err
	}
	recorded := make(chan error, 1)
	go func() { recorded <- o.record(ctx, lost) }()
	return func() error {
		cancel()
		watched.Wait()
		return <-recorded
	}
}

// record feeds the journal and top until ctx ends. engineLost returns how many events the engine
// has lost in all.
func (o *observer) record(ctx context.Context, engineLost func() (uint64, error)) error {
	if o.journal == nil {
		o.tick(ctx, engineLost)
		return nil
	}
	o.mu.Lock()
	sub := o.sub
	o.mu.Unlock()
	defer sub.Close()
	var ticks sync.WaitGroup
	ticks.Go(func() { o.tick(ctx, engineLost) })
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
		o.log.Error("the last events are not kept", "err", err)
	}
	return nil
}

// tick does what is due every second.
func (o *observer) tick(ctx context.Context, engineLost func() (uint64, error)) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		o.clock.set()
		if o.refresh != nil {
			o.refresh()
		}
		if now, err := engineLost(); err == nil {
			o.mu.Lock()
			more := now - o.lost
			if now < o.lost {
				more = now
			}
			o.lost = now
			o.mu.Unlock()
			o.hub.Lose(more)
		}
		o.mu.Lock()
		o.budget = journalRate
		o.mu.Unlock()
		if o.journal != nil {
			if err := o.journal.Flush(); o.kept != nil {
				o.kept(err)
			}
		}
	}
}

// takeLocked puts events into top and the journal.
func (o *observer) takeLocked(events []firewall.Event, lost uint64) {
	for i := range events {
		at := o.clock.wall(events[i].Time)
		o.top.Add(&events[i], at)
		if o.journal == nil {
			continue
		}
		if o.budget == 0 {
			o.skipped++
			continue
		}
		o.budget--
		o.skipped += o.journal.TakeLost()
		e := o.names.Event(&events[i])
		e.Lost, o.skipped = o.skipped, 0
		o.keep(&e)
	}
	o.skipped += lost
	if lost > 0 && o.journal != nil && o.budget > 0 {
		o.budget--
		e := observe.Event{At: time.Now(), Lost: o.skipped}
		o.skipped = 0
		o.keep(&e)
	}
}

// keep writes an event. The journal counts a failure and reports it at the next tick.
func (o *observer) keep(e *observe.Event) {
	if o.journal.Append(e) != nil {
		o.skipped += e.Lost // the gap that it would have recorded
	}
}

// eventsKept updates the problem that the history is not kept.
func (n *Node) eventsKept(err error) {
	if err != nil {
		n.problems.Set("the history of events", "events are not kept: "+err.Error(),
			"free space on the disk; it is tried again")
		return
	}
	n.problems.Solved("the history of events")
}

// listen subscribes a reader. With a since that is not zero it gets the events from then on first,
// each exactly once.
func (o *observer) listen(since time.Time) (past func(func(observe.Event) bool), sub *observe.Sub,
	err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case since.IsZero():
		return nil, o.hub.Subscribe(readerQueue), nil
	case o.journal == nil:
		return nil, nil, errors.New("this node keeps no history (settings: [observe] history)")
	}
	waiting, lost, sub := o.hub.Split(o.sub, readerQueue)
	o.takeLocked(waiting, lost)
	seq, err := o.journal.Since(since)
	if err != nil {
		sub.Close()
		return nil, nil, fmt.Errorf("read the events of the past: %w", err)
	}
	return seq, sub, nil
}

// eventsDir is where the journal lies.
func (p Paths) eventsDir() string { return filepath.Join(p.State(), "events") }
