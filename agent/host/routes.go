package host

import (
	"sync/atomic"

	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/program"
)

// Routes passes the host's routes to the engine.
type Routes struct {
	engine Engine
	wake   chan struct{} // has an element when routes changed since the engine got them
	// remeasure: routes with an MTU of their own may have changed since the engine got them.
	remeasure atomic.Bool
	relocate  atomic.Bool // local routes may have changed since TakeLocal
	released  atomic.Bool // this run has taken back what rules with fwd need: fwd_routes.go
}

// NewRoutes returns the routes of a node whose engine has none yet.
func NewRoutes(e Engine) *Routes { return &Routes{engine: e, wake: make(chan struct{}, 1)} }

// Wake has an element when routes changed since the engine got them.
func (r *Routes) Wake() <-chan struct{} { return r.wake }

// MarkChanged asks for the routes to be read again, those that may have changed.
func (r *Routes) MarkChanged(what nl.RouteChange) {
	if what.MTU {
		r.remeasure.Store(true)
	}
	if what.Local {
		r.relocate.Store(true)
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// TakeLocal reports whether local routes may have changed since it was called before.
func (r *Routes) TakeLocal() bool { return r.relocate.Swap(false) }

// SetMTUs gives the engine the routes with an MTU of their own, if they may have changed.
func (r *Routes) SetMTUs() error {
	if !r.remeasure.Swap(false) {
		return nil
	}
	err := r.setMTUs()
	if err != nil {
		r.remeasure.Store(true)
	}
	return err
}

func (r *Routes) setMTUs() error {
	conn, err := routes.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	routes, err := conn.RoutesWithMTU()
	if err != nil {
		return err
	}
	var all []kernel.RouteMTU
	for _, one := range routes {
		all = append(all, kernel.RouteMTU{Dst: one.Dst, MTU: uint32(one.MTU)})
	}
	return r.engine.SetRouteMTUs(all)
}

// SetForRules gives the engine the host's routes if rules use them, because there can be a million,
// and the routes to the next hops of rules.
func (r *Routes) SetForRules(p *program.Program) error {
	if err := r.setHops(p); err != nil {
		return err
	}
	if p.Features&(program.HasVerRevPath|program.HasVerSrcReach) == 0 {
		return nil
	}
	routes, err := routes.List()
	if err != nil {
		return err
	}
	return r.engine.SetRoutes(routes)
}
