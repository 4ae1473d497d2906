package peers

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/overlay"
)

// device is WireGuard as the peers need it: the kernel's, or ours in user space.
type device interface {
	Name() string
	Index() int
	PublicKey() overlay.Key
	Port() uint16
	// Done is closed when the interface is gone.
	Done() <-chan struct{}
	SetPeer(overlay.Peer) error
	ReplacePeer(old overlay.Key, with overlay.Peer) error
	RemovePeer(overlay.Key) error
	Peers() ([]overlay.PeerStatus, error)
	Stats() overlay.Stats
	// Reroute restores routes that other programs have deleted.
	Reroute() error
}

// tunnel is the encrypted tunnel to other nodes: the device, and the engine that evaluates its
// packets. The kernel's WireGuard has the kernel engine's hooks instead.
type tunnel struct {
	config *Config
	has    func(netip.Addr) bool // reports whether an address is in the pod ranges of a peer
	owns   *atomic.Bool          // the interface of the tunnel's name is ours
	device device
	user   *overlay.Device       // nil for the kernel's WireGuard
	kernel *overlay.KernelDevice // nil for ours
	engine *soft.Engine          // nil for the kernel's
	own    *injector             // nil for the kernel's
	stop   chan struct{}
	done   sync.WaitGroup
}

// tunnelTick is how often the engine gives memory back.
const tunnelTick = 10 * time.Millisecond

// openUser makes the device in user space, without peers. From then on its engine gets what the
// kernel engine gets.
func (p *Service) openUser(key overlay.Key) (*tunnel, error) {
	if err := nameFree(p.config.Settings.Name); err != nil {
		return nil, err
	}
	t := &tunnel{config: &p.config, has: p.has, owns: &p.ownsName, stop: make(chan struct{})}
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
	c, s := t.config, t.config.Settings
	o := c.Options
	o.NoDHCP = true // no host leases an address through a tunnel
	t.engine, err = soft.New(soft.Options{Options: o, OnEvent: c.OnEvent})
	if err != nil {
		return err
	}
	if err := c.Join(t.engine); err != nil {
		return err
	}
	if t.own, err = newInjector(c.Links.IsMe, c.IsPod); err != nil {
		return err
	}
	now := func() time.Duration { return clock.Now() }
	d := overlay.Config{Name: s.Name, Key: key, Port: s.Port, MTU: s.MTU, Log: c.Log,
		Filter: t.own.bypass(overlay.FilterBy(c.Worker(t.engine.Worker(0)), now,
			t.own.refused)),
		NoPeer: t.own.noPeer}
	if !s.NoWG {
		d.UAPI = c.Files.UAPI
	}
	// before the kernel reports the interface, which would be guarded otherwise
	t.owns.Store(true)
	if t.user, err = overlay.New(d); err != nil {
		return err
	}
	t.device = t.user
	if err := t.setUp(s); err != nil {
		return err
	}
	t.done.Go(t.tick)
	t.done.Go(func() { t.own.serve(t.stop, t.user) })
	return nil
}

// setUp gives the interface its addresses and makes it known to the rules. The kernel's own
// notification may come later.
func (t *tunnel) setUp(s Settings) error {
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
	return t.config.AddTunnel(link)
}

// key reads the node's private key, and makes one the first time.
func (c *Config) key() (overlay.Key, error) {
	file := c.Settings.KeyFile
	if file == "" {
		file = c.Files.Key
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return overlay.Key{}, err
	}
	return overlay.LoadKey(file)
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
			w.Tick(clock.Now(), t.own.probe)
		}
	}
}

// close takes the interface away, and its engine out of engines. It also ends one that was only
// half made.
func (t *tunnel) close() error {
	return t.end(func() error { return t.kernel.Delete() })
}

// leave is close, but the kernel's WireGuard and its hooks stay, and carry and evaluate packets.
func (t *tunnel) leave() error {
	return t.end(func() error { return t.kernel.Close() })
}

func (t *tunnel) end(kernel func() error) error {
	close(t.stop)
	var err error
	switch {
	case t.user != nil:
		err = t.user.Close()
	case t.kernel != nil:
		err = kernel()
	}
	t.done.Wait()
	if t.own != nil {
		t.own.close()
	}
	if t.engine != nil {
		t.config.Engine.DropTunnel(t.engine)
	}
	t.owns.Store(false)
	return err
}
