package soft

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// Options are the settings of an engine. The zero value is ready for use: it has one worker, and
// the limits and timeouts of firewall.DefaultOptions.
type Options struct {
	// MaxStates, MaxHalfOpen, MaxPerSource and MaxTracks are all those of firewall.DefaultOptions
	// if none of them is set. So are Timeouts that are all zero.
	firewall.Options
	// Workers is the number of goroutines that evaluate packets, each through a Worker of its own;
	// 0 means one.
	Workers int
	// OnEvent is called when a state begins or ends, when a packet is dropped, and when a rule with
	// log matches. It is called on the packet path and must return at once. The event is valid
	// during the call only. nil costs nothing.
	OnEvent func(*firewall.Event)
}

// Engine is the user-space engine. It implements firewall.Engine; packets are evaluated by its
// Workers.
type Engine struct {
	opts    Options
	workers []*Worker
	shards  []*shard
	seed    [4]uint64
	states  atomic.Int64 // states that the shards have added
	batch   int          // how many a shard may have that are not added yet
	tracks  *tracks
	rates   *rates
	sources sources
	frags   *fragTable
	onEvent func(*firewall.Event)
	// prefetchStates is the constant; tests make it smaller.
	prefetchStates int

	mu     sync.Mutex // guards what follows; held by the control side only
	ids    map[uint64]uint32
	nextID uint32
	flows  map[string]uint8
	cfg    *config
	gen    uint64
	tables map[string]*members
	ifs    []firewall.Interface
	routes []firewall.Route
}

// members is a named table. Its content is replaced as a whole, so readers need no lock.
type members struct {
	set atomic.Pointer[prefixes]
}

var _ firewall.Engine = (*Engine)(nil)

// New returns an engine that passes everything until Load is called, like a node without a rule
// file.
func New(o Options) (*Engine, error) {
	o.Workers = max(1, o.Workers)
	o.fill()
	for _, limit := range []struct {
		name        string
		have, least int
	}{{"MaxStates", o.MaxStates, 1}, {"MaxHalfOpen", o.MaxHalfOpen, 1},
		{"MaxTracks", o.MaxTracks, 0}} {
		if limit.have < limit.least {
			return nil, fmt.Errorf("soft: Options.%s is %d, must be at least %d: begin with "+
				"firewall.DefaultOptions()", limit.name, limit.have, limit.least)
		}
	}
	e := &Engine{
		opts: o, onEvent: o.OnEvent, prefetchStates: prefetchStates, tracks: newTracks(o.MaxTracks),
		rates: newRates(), frags: &fragTable{}, sources: newSources(o.MaxHalfOpen),
		ids: map[uint64]uint32{}, tables: map[string]*members{},
	}
	if err := binary.Read(rand.Reader, binary.LittleEndian, &e.seed); err != nil {
		return nil, fmt.Errorf("soft: secret of the state table: %w", err)
	}
	e.frags.seed = e.seed
	if o.Workers > 1 {
		e.batch = o.MaxStates / 20 / o.Workers
	}
	p, err := rule.Compile(&rule.Ruleset{}, rule.CompileOptions{Default: op.ActionAllow})
	if err != nil {
		return nil, fmt.Errorf("soft: empty program: %w", err)
	}
	for i := range o.Workers {
		s := &shard{engine: e, index: i, many: o.Workers > 1,
			ring:        newRing(o.MaxPerSource, o.MaxHalfOpen, o.Workers),
			established: newTable(o.MaxStates/o.Workers, e.seed),
			halfOpen:    newTable(o.MaxHalfOpen/o.Workers, e.seed)}
		e.shards = append(e.shards, s)
		e.workers = append(e.workers, &Worker{engine: e, shard: s, ps: new([group]packet.Packet)})
	}
	return e, e.Load(p)
}

// fill puts the defaults in the place of limits and timeouts that are not set.
func (o *Options) fill() {
	d := firewall.DefaultOptions()
	if o.MaxStates == 0 && o.MaxHalfOpen == 0 && o.MaxPerSource == 0 && o.MaxTracks == 0 {
		o.MaxStates, o.MaxHalfOpen = d.MaxStates, d.MaxHalfOpen
		o.MaxPerSource, o.MaxTracks = d.MaxPerSource, d.MaxTracks
	}
	if o.Timeouts == (flow.Timeouts{}) {
		o.Timeouts = d.Timeouts
	}
}

// Worker returns worker i of Options.Workers. A Worker is for one goroutine.
func (e *Engine) Worker(i int) *Worker { return e.workers[i] }

// Load replaces the Program. Workers continue meanwhile: each takes the new rules over between two
// packets.
func (e *Engine) Load(p *rule.Program) error { return e.Replace(p, nil) }

// Replace is Load with some tables, see firewall.Engine. They are made beside those in force, which
// the rules before continue asking.
func (e *Engine) Replace(p *rule.Program, tables map[string][]rule.TableEntry) error {
	if err := CheckProgram(p); err != nil {
		return err
	}
	next := make(map[string]*members, len(tables))
	for name, entries := range tables {
		set, err := newPrefixes(name, entries)
		if err != nil {
			return err
		}
		next[name] = &members{}
		next[name].set.Store(set)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.Copy(e.tables, next)
	var before []string
	if e.cfg != nil {
		before = e.cfg.prog.Tables
	}
	e.gen++
	c := &config{prog: p, rules: p.Rules, gen: e.gen, opts: &e.opts.Options,
		class: newClasses(&p.Classes)}
	e.numberLocked(c)
	for i := range p.Rules {
		if p.Rules[i].State.LooksUp() {
			c.lookups = append(c.lookups, uint16(i))
		}
	}
	for _, name := range p.Tables {
		c.tables = append(c.tables, e.tableLocked(name))
	}
	c.host = newHost(p, e.ifs, e.routes)
	e.logsLocked(c)
	c.prepareFastPath()
	e.installLocked(c)
	for name := range next {
		e.forgetTableLocked(name)
	}
	for _, name := range before {
		e.forgetTableLocked(name)
	}
	e.rates.renumber(p.Pipes, func(id uint32) (uint32, bool) { return id, !c.gone(id) })
	return nil
}

// installLocked makes every shard use a config. The counters of rules that remain go with them.
func (e *Engine) installLocked(c *config) {
	var before []int32 // by new slot: the old one, -1 for none
	if e.cfg != nil && e.cfg.prog != c.prog {
		for _, id := range c.ids {
			before = append(before, int32(e.cfg.slotOf(id)))
		}
	}
	for _, s := range e.shards {
		rules := newCounters(len(c.rules))
		s.hold()
		switch {
		case before != nil:
			for slot, old := range before {
				if old >= 0 {
					rules[slot] = s.rules[old]
				}
			}
			s.rules = rules
			s.established.purge = len(s.established.tags)
		case s.rules == nil:
			s.rules = rules
		}
		s.cfg = c
		s.moves++
		if before != nil {
			s.endOrphans()
		}
		s.release()
	}
	e.cfg = c
}
