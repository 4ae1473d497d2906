package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weirnet/weir/agent/adopt"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/overlay"
	"github.com/weirnet/weir/rule"
)

// tunnel is the encrypted tunnel to other nodes: the device, and the engine that evaluates its
// packets.
type tunnel struct {
	node   *Node
	engine *soft.Engine
	device *overlay.Device
	own    *injector
	stop   chan struct{}
	done   sync.WaitGroup
}

// tunnelTick is how often the engine gives memory back.
const tunnelTick = 10 * time.Millisecond

// openTunnel makes the device without peers. From then on its engine gets what the kernel engine
// gets.
func (n *Node) openTunnel() (*tunnel, error) {
	if err := n.pods.CheckTunnelPort(n.config.Settings.Overlay.Port); err != nil {
		return nil, err
	}
	if err := nameFree(n.config.Settings.Overlay.Name); err != nil {
		return nil, err
	}
	key, err := n.tunnelKey()
	if err != nil {
		return nil, err
	}
	t := &tunnel{node: n, stop: make(chan struct{})}
	if err := t.open(key); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// nameFree reports whether no interface has a name. An interface that has it is another program's,
// and guarded like any other.
func nameFree(name string) error {
	conn, err := routes.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.LinkByName(name); err == nil {
		return fmt.Errorf("interface %s: %w", name, overlay.ErrNameTaken)
	}
	return nil
}

func (t *tunnel) open(key overlay.Key) (err error) {
	n, s := t.node, t.node.config.Settings.Overlay
	t.engine, err = soft.New(soft.Options{Options: n.config.Settings.Engine,
		OnEvent: n.observer.TunnelEvent})
	if err != nil {
		return err
	}
	if err := n.joinEngine(t.engine); err != nil {
		return err
	}
	if t.own, err = newInjector(n); err != nil {
		return err
	}
	clock := func() time.Duration { return time.Duration(clock.Now()) }
	c := overlay.Config{Name: s.Name, Key: key, Port: s.Port, MTU: s.MTU, Log: n.log,
		Filter: t.own.bypass(overlay.FilterBy(n.observer.Captures.Worker(t.engine.Worker(0)), clock,
			t.own.refused))}
	if !s.NoWG {
		c.UAPI = n.config.Paths.WG()
	}
	// before the kernel reports the interface, which would be guarded otherwise
	n.peers.ownsName.Store(true)
	if t.device, err = overlay.New(c); err != nil {
		return err
	}
	if err := t.setUp(s); err != nil {
		return err
	}
	t.done.Go(t.tick)
	t.done.Go(func() { t.own.serve(t.stop, t.device) })
	return nil
}

// setUp gives the interface its addresses and makes it known to the rules. The kernel's own
// notification may come later.
func (t *tunnel) setUp(s OverlaySettings) error {
	conn, err := routes.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, a := range s.Addrs {
		if err := conn.AddAddr(t.device.Index(), a); err != nil {
			return fmt.Errorf("overlay.addresses: %w", err)
		}
	}
	link, err := conn.LinkByIndex(t.device.Index())
	if err != nil {
		return err
	}
	return t.node.hooks.AddTunnel(link)
}

// tunnelKey reads the node's private key, and makes one the first time.
func (n *Node) tunnelKey() (overlay.Key, error) {
	file := n.config.Settings.Overlay.KeyFile
	if file == "" {
		file = n.config.Paths.Key()
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return overlay.Key{}, err
	}
	return overlay.LoadKey(file)
}

// joinEngine gives a new engine all that the other one got, and registers it for all later changes.
func (n *Node) joinEngine(e *soft.Engine) (err error) {
	n.rules.View(func(r rules.Version, p *rule.Program) {
		for name := range r.Set.Tables {
			err = errors.Join(err, e.SetTable(name, rulefile.Entries(r.Set.Tables[name])))
		}
		// a pod that comes now reaches both engines
		n.pods.ViewLabels(func(tables map[string][]firewall.TableEntry) {
			for name, members := range tables {
				err = errors.Join(err, e.SetTable(name, members))
			}
			n.hooks.View(func(ifs []firewall.Interface) {
				err = errors.Join(err, e.SetInterfaces(ifs))
				if p.Features&(rule.HasVerRevPath|rule.HasVerSrcReach) != 0 {
					routes, bad := routes.List()
					err = errors.Join(err, bad, e.SetRoutes(routes))
				}
				if err = errors.Join(err, e.Load(p)); err == nil {
					n.engine.SetTunnel(e)
				}
			})
		})
	})
	return err
}

// tick gives the memory of expired states back and probes idle connections.
func (t *tunnel) tick() {
	w := t.engine.Worker(0)
	tick := time.NewTicker(tunnelTick)
	defer tick.Stop()
	for {
		select {
		case <-t.stop:
			return
		case <-tick.C:
			w.Tick(time.Duration(clock.Now()), t.own.probe)
		}
	}
}

// close takes the interface away, and its engine out of engines. It also ends one that was only
// half made.
func (t *tunnel) close() error {
	close(t.stop)
	var err error
	if t.device != nil {
		err = t.device.Close()
	}
	t.done.Wait()
	if t.own != nil {
		t.own.close()
	}
	if t.engine != nil {
		t.node.engine.DropTunnel(t.engine)
	}
	t.node.peers.ownsName.Store(false)
	return err
}

// adopt makes states of the flows that the kernel's engine or a socket of this host has and that go
// through the tunnel: the states of an agent that died are gone, the connections are not. p is what
// the engine runs.
func (t *tunnel) adopt(p *rule.Program) error {
	var states []firewall.State
	weir := uint32(t.device.Index())
	for s, err := range t.node.engine.KernelStates() {
		if err != nil {
			return err
		}
		var hook firewall.Hook
		switch {
		case t.node.peers.has(s.To.Addr()):
			hook = firewall.Hook{Dir: firewall.Out, Xmit: weir}
		case t.node.peers.has(s.From.Addr()):
			hook = firewall.Hook{Dir: firewall.In, Recv: weir}
		default:
			continue
		}
		if one, ok := t.adoptable(p, hook, s); ok {
			states = append(states, one)
		}
	}
	local, err := t.sockets(p, weir)
	if err != nil {
		return err
	}
	_, err = t.engine.Adopt(append(states, local...), clock.Now())
	return err
}

// sockets finds the host's own connections that go through the tunnel.
func (t *tunnel) sockets(p *rule.Program, weir uint32) ([]firewall.State, error) {
	open, err := nl.TCPSockets(nil)
	if err != nil {
		return nil, err
	}
	var states []firewall.State
	for _, candidates := range adopt.Openings(open) {
		for _, o := range candidates {
			hook, remote := firewall.Hook{Dir: firewall.Out, Xmit: weir}, o.To
			if o.In {
				hook, remote = firewall.Hook{Dir: firewall.In, Recv: weir}, o.From
			}
			if !t.node.peers.has(remote.Addr()) {
				continue
			}
			if one, ok := t.adoptable(p, hook,
				firewall.State{Proto: 6, From: o.From, To: o.To}); ok {
				states = append(states, one)
				break
			}
		}
	}
	return states, nil
}

// adoptable returns the state that the rules would have created for a flow.
func (t *tunnel) adoptable(p *rule.Program, hook firewall.Hook, s firewall.State) (firewall.State,
	bool) {
	e := t.engine.Check(&firewall.Input{Hook: hook, Now: time.Duration(clock.Now())}, s.Proto,
		s.From, s.To)
	if !e.Verdict.Pass {
		return s, false
	}
	return adopt.State(p, e, hook, s)
}
