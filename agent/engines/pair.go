// Package engines combines the kernel engine and the tunnel's engine of a node.
package engines

import (
	"iter"
	"net/netip"
	"sync/atomic"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// Pair runs the kernel engine, which guards interfaces, and, while there is a tunnel, the
// user-space engine, which guards the tunnel. Both run the same rules: what one refuses, neither
// gets. Counters are the sum of both.
type Pair struct {
	kernel     *kernel.Engine
	tunnel     atomic.Pointer[soft.Engine] // nil without a tunnel
	subscribed atomic.Bool                 // there is a subscriber to events
}

var _ firewall.Engine = (*Pair)(nil)

// Open opens the kernel engine of a Pair that has none yet.
func (e *Pair) Open(c kernel.Config) (err error) {
	e.kernel, err = kernel.Open(c)
	return err
}

// SetTunnel adds the engine of the tunnel, which has what the kernel engine has got so far.
func (e *Pair) SetTunnel(t *soft.Engine) { e.tunnel.Store(t) }

// DropTunnel takes the engine of the tunnel out, if it is this one.
func (e *Pair) DropTunnel(t *soft.Engine) { e.tunnel.CompareAndSwap(t, nil) }

// Subscribed reports whether there is a subscriber to events.
func (e *Pair) Subscribed() bool { return e.subscribed.Load() }

// Load replaces the Program of both, or of none.
func (e *Pair) Load(p *program.Program) error { return e.Replace(p, nil) }

// Replace replaces the Program and tables of both. The tunnel's engine checks the Program first: to
// undo a Program costs the states of rules that come back with it. After an error the caller
// restores the tables; it knows what they held.
func (e *Pair) Replace(p *program.Program, tables map[string][]rule.TableEntry) error {
	t := e.tunnel.Load()
	if t != nil {
		if err := soft.CheckProgram(p); err != nil {
			return err
		}
	}
	if err := e.kernel.Replace(p, tables); err != nil || t == nil {
		return err
	}
	return t.Replace(p, tables)
}

// each calls do for both engines, the kernel's first.
func (e *Pair) each(ask func(firewall.Engine) error) error {
	if err := ask(e.kernel); err != nil {
		return err
	}
	if t := e.tunnel.Load(); t != nil {
		return ask(t)
	}
	return nil
}

// SetTable implements firewall.Engine.
func (e *Pair) SetTable(name string, entries []rule.TableEntry) error {
	return e.each(func(x firewall.Engine) error { return x.SetTable(name, entries) })
}

// AddTable implements firewall.Engine.
func (e *Pair) AddTable(name string, m rule.TableEntry) error {
	return e.each(func(x firewall.Engine) error { return x.AddTable(name, m) })
}

// DeleteTable implements firewall.Engine.
func (e *Pair) DeleteTable(name string, p netip.Prefix) error {
	return e.each(func(x firewall.Engine) error { return x.DeleteTable(name, p) })
}

// SetInterfaces implements firewall.Engine.
func (e *Pair) SetInterfaces(ifs []firewall.Interface) error {
	return e.each(func(x firewall.Engine) error { return x.SetInterfaces(ifs) })
}

// FollowNAT has the kernel engine try again what an instance of nat could not have.
func (e *Pair) FollowNAT() error { return e.kernel.FollowNAT() }

// SetRoutes implements firewall.Engine.
func (e *Pair) SetRoutes(routes []firewall.Route) error {
	return e.each(func(x firewall.Engine) error { return x.SetRoutes(routes) })
}

// Rules returns the counters by rule index. While a Program is being replaced the two may run
// different ones; then the kernel's count alone.
func (e *Pair) Rules() ([]firewall.RuleCounter, error) {
	all, err := e.kernel.Rules()
	t := e.tunnel.Load()
	if err != nil || t == nil {
		return all, err
	}
	more, err := t.Rules()
	if err != nil {
		return nil, err
	}
	for i := range all {
		if i < len(more) && more[i].Key == all[i].Key {
			all[i].Packets += more[i].Packets
			all[i].Bytes += more[i].Bytes
			all[i].Last = max(all[i].Last, more[i].Last)
		}
	}
	return all, nil
}

// Zero implements firewall.Engine.
func (e *Pair) Zero(number uint16) error {
	return e.each(func(x firewall.Engine) error { return x.Zero(number) })
}

// Decisions implements firewall.Engine.
func (e *Pair) Decisions() (map[firewall.Decision]firewall.Count, error) {
	sums := map[firewall.Decision]firewall.Count{}
	err := e.each(func(x firewall.Engine) error {
		some, err := x.Decisions()
		for d, n := range some {
			n.Add(sums[d])
			sums[d] = n
		}
		return err
	})
	return sums, err
}

// States yields the states of the kernel's engine and then those of the tunnel.
func (e *Pair) States() iter.Seq2[firewall.State, error] {
	return func(yield func(firewall.State, error) bool) {
		for _, from := range e.Readers() {
			for s, err := range from.States() {
				if !yield(s, err) {
					return
				}
			}
		}
	}
}

// Readers are the engines that have states.
func (e *Pair) Readers() []firewall.Engine {
	if t := e.tunnel.Load(); t != nil {
		return []firewall.Engine{e.kernel, t}
	}
	return []firewall.Engine{e.kernel}
}

// DeleteStates implements firewall.Engine.
func (e *Pair) DeleteStates(drop func(firewall.State) bool) (int, error) {
	cut := 0
	err := e.each(func(x firewall.Engine) error {
		n, err := x.DeleteStates(drop)
		cut += n
		return err
	})
	return cut, err
}

// Subscribe sets which events the kernel engine reports. The tunnel's engine reports all or none.
func (e *Pair) Subscribe(kinds ...firewall.EventKind) error {
	e.subscribed.Store(len(kinds) > 0)
	return e.kernel.Subscribe(kinds...)
}
