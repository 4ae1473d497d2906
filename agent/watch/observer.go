// Package watch shows what happens at a node: events and their history, top, metrics, captures and
// states. It also reports to the service manager that the node is alive.
package watch

import (
	"context"
	"iter"
	"log/slog"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/rule"
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

// Engine is what the part needs of the engines.
type Engine interface {
	Subscribe(kinds ...firewall.EventKind) error
	Watch(context.Context, func(firewall.Event)) error
	Capture(func(*firewall.Captured)) error
	Stats() (kernel.Stats, error)
	States() iter.Seq2[firewall.State, error]
	DeleteStates(drop func(firewall.State) bool) (int, error)
	Decisions() (map[firewall.Decision]firewall.Count, error)
	// KernelDecisions are those of the kernel engine alone.
	KernelDecisions() (map[firewall.Decision]firewall.Count, error)
	// Rules are the counters of the rules in force.
	Rules() ([]firewall.RuleCounter, error)
	// Readers are the engines that have states, the kernel's first.
	Readers() []firewall.Engine
	// Subscribed reports whether there is a subscriber to events.
	Subscribed() bool
}

// Links knows the host's interfaces and addresses.
type Links interface {
	// Name returns the name of an interface, "" if it is not known.
	Name(index uint32) string
	// IsMe reports whether rules take an address for me.
	IsMe(netip.Addr) bool
	// Has reports whether an interface has an address.
	Has(name string, a netip.Addr) bool
	Interfaces() []firewall.Interface
}

// Rules knows the rules in force.
type Rules interface {
	// Names are the host's names for users and groups and ports in rules.
	Names() *rule.Names
	// TableOf returns the first table, by name, that has an address; "" if none has.
	TableOf(netip.Addr) string
	// RuleText returns the text of the rule at an index, if it has that number.
	RuleText(index int, number uint16) string
	// List returns the rules with their counters.
	List() (api.Rules, error)
}

// Pods knows the containers of the node.
type Pods interface {
	// ByAddress returns the names of all pods, as "pod:NAME".
	ByAddress() map[netip.Addr]string
	// List returns the pods with their counters.
	List() (api.Pods, error)
}

// Peers knows the other nodes.
type Peers interface {
	// Ranges are the addresses of their pods.
	Ranges() []netip.Prefix
	List() (api.Peers, error)
}

// Config is what an Observer needs.
type Config struct {
	Settings Settings
	Dir      string // of the journal
	Log      *slog.Logger
	Problems *problem.List
	Retry    *problem.Retrier

	Engine Engine
	Links  Links
	Rules  Rules
	Pods   Pods
	Peers  Peers
	// Table returns the value of an address in a table.
	Table func(table string, a netip.Addr) (value uint32, found bool)
	// Why explains what the node would do with a packet.
	Why func(api.Why) (api.Explanation, error)
	// Metrics are those of the other parts.
	Metrics []func() ([]observe.Metric, error)
}

// Observer turns the engine's events into views. It is the only permanent subscriber, unless the
// settings want no history. What rules with log match goes to the journal of systemd in any case.
type Observer struct {
	Captures Captures

	config    Config
	cookies   atomic.Bool // SYN cookies are on, as far as the log knows
	hub       observe.Hub
	names     observe.Names
	clock     wallClock
	began     time.Time
	addresses atomic.Pointer[addressNames]
	// journal is nil without history; then nothing is recorded, and top knows of no refusals.
	journal *observe.Journal
	limit   *rate.Limiter // of events in the journal
	history *history      // of the counters
	sampled samplerWork
	// log is what rules with log write to; nil without a journal of systemd
	log *journald

	mu      sync.Mutex            // its place in the lock order: agent/doc.go
	sub     *observe.Subscription // guarded by mu; what the journal and top are fed by
	top     *observe.Top          // guarded by mu
	skipped uint64                // guarded by mu; events that were not written since the last one
	lost    uint64                // guarded by mu; what the engine has lost so far
}

// wallClock turns times of the engine's clock into wall time.
type wallClock struct{ offset atomic.Int64 }

// set compares the clocks. Of three times the shortest counts: a thread that loses the processor in
// between compares nothing.
func (c *wallClock) set() {
	shortest, offset := time.Duration(math.MaxInt64), int64(0)
	for range 3 {
		before := clock.Now()
		wall := time.Now().UnixNano()
		if took := clock.Now() - before; took < shortest {
			shortest, offset = took, wall-int64(before+took/2)
		}
	}
	c.offset.Store(offset)
}

func (c *wallClock) wall(t time.Duration) time.Time {
	return time.Unix(0, int64(t)+c.offset.Load())
}

// New returns an Observer that does not observe yet.
func New(c Config) *Observer {
	o := &Observer{config: c, top: observe.NewTop(topPairs),
		limit:   rate.NewLimiter(journalRate, journalRate),
		history: newHistory(c.Rules.RuleText)}
	o.Captures.capture = c.Engine.Capture
	o.names.Wall = o.clock.wall
	return o
}

// Begin continues the journal and starts everything that subscribes to the engine. stop ends it.
// Without space for the journal there is no history; the rest works.
func (o *Observer) Begin(ctx context.Context) (stop func() error) {
	o.began = time.Now()
	o.clock.set()
	o.nameThings()
	if history := o.config.Settings.History; history > 0 {
		// with a failure, too, since Flush tries again
		journal, err := observe.OpenJournal(o.config.Dir, history, journalBytes)
		o.journal = journal
		o.kept(err)
	}
	o.hub.Subscribed = func(on bool) {
		kinds := o.logKinds()
		if on {
			kinds = eventKinds[:]
		}
		o.subscribe(kinds)
	}
	if o.log = newJournald(o.describe); o.log != nil {
		go o.log.run(ctx)
	}
	// Before the first event, which may be waiting in the kernel since there was no agent; and at
	// once all that is wanted, so that no event comes in between.
	if o.journal != nil {
		o.sub = o.hub.Subscribe(readerQueue)
	} else {
		o.subscribe(o.logKinds())
	}
	ctx, cancel := context.WithCancel(ctx)
	var watched sync.WaitGroup
	watched.Go(func() {
		o.config.Retry.Run(ctx, "events are not read and idle connections are not probed",
			"weir doctor", func(ctx context.Context) error {
				return o.config.Engine.Watch(ctx, func(e firewall.Event) { o.publish(&e) })
			})
	})
	watched.Go(func() { o.sampleLoop(ctx) })
	recorded := make(chan error, 1)
	go func() { recorded <- o.record(ctx) }()
	return func() error {
		cancel()
		watched.Wait()
		return <-recorded
	}
}

// TunnelEvent publishes an event of the tunnel's engine. It is called on the packet path and never
// blocks.
func (o *Observer) TunnelEvent(e *firewall.Event) {
	if o.config.Engine.Subscribed() {
		o.publish(e)
	}
}

func (o *Observer) publish(e *firewall.Event) {
	o.hub.Publish(e)
	o.log.put(e)
}

// subscribe sets which events the engines make.
func (o *Observer) subscribe(kinds []firewall.EventKind) {
	if err := o.config.Engine.Subscribe(kinds...); err != nil {
		o.config.Log.Error("cannot listen to events", "err", err)
	}
}

// logKinds are the events that are wanted while there is no reader.
func (o *Observer) logKinds() []firewall.EventKind {
	if o.log == nil {
		return nil
	}
	return []firewall.EventKind{firewall.EventLog}
}

// describe returns an event with its names and the text of its rule.
func (o *Observer) describe(ev *firewall.Event) (e observe.Event, text string) {
	return o.names.Event(ev), o.config.Rules.RuleText(int(ev.Verdict.Slot), ev.Verdict.Rule)
}

// engineLost returns how many events the engine has lost in all.
func (o *Observer) engineLost() (uint64, error) {
	s, err := o.config.Engine.Stats()
	if err == nil {
		o.watchCookies(&s)
	}
	return s.Lost, err
}
