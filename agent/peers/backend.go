package peers

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/overlay"
)

// openTunnel makes the device without peers, by the back end of the settings. What another one has
// left is removed first: the ranges of the peers are closed.
func (p *Service) openTunnel() (*tunnel, error) {
	s := p.config.Settings
	if err := p.config.CheckPort(s.Port); err != nil {
		return nil, err
	}
	key, err := p.config.key()
	if err != nil {
		return nil, err
	}
	shown := api.Tunnel{Interface: s.Name, Backend: string(BackendUser)}
	if s.Backend != BackendUser {
		t, err := p.openKernel(key)
		if s.Backend == BackendKernel || !errors.Is(err, overlay.ErrNoKernel) {
			p.shown.Store(&api.Tunnel{Interface: s.Name, Backend: string(BackendKernel)})
			return t, err
		}
		shown.Reason = err.Error()
	}
	if err := deleteKernelLinks(p.config.Files, ""); err != nil {
		return nil, err
	}
	p.shown.Store(&shown)
	return p.openUser(key)
}

// openKernel makes the interface of the kernel's WireGuard, or takes over the one that an earlier
// agent left. It is switched on when the kernel engine evaluates its packets.
func (p *Service) openKernel(key overlay.Key) (*tunnel, error) {
	s := p.config.Settings
	if err := deleteKernelLinks(p.config.Files, s.Name); err != nil {
		return nil, err
	}
	known := slices.Collect(maps.Values(p.byName))
	t := &tunnel{config: &p.config, has: p.has, owns: &p.ownsName, stop: make(chan struct{})}
	var err error
	if t.kernel, err = overlay.NewKernel(overlay.Config{Name: s.Name, Key: key, Port: s.Port,
		MTU: s.MTU, Owner: owner(p.config.Files), Log: p.config.Log}, known); err != nil {
		return nil, err
	}
	t.device = t.kernel
	if err := t.guard(s); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// guard puts the hooks on the interface, and switches it on then.
func (t *tunnel) guard(s Settings) error {
	conn, err := routes.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	link, err := conn.LinkByIndex(t.kernel.Index())
	if err != nil {
		return err
	}
	if err := t.config.AddTunnel(link); err != nil {
		return err
	}
	return t.kernel.Up(s.Addrs)
}

// owner marks the interfaces of the kernel's WireGuard that belong to the node with these files.
func owner(f Files) string { return f.Record }

// deleteKernelLinks deletes the node's interfaces of the kernel's WireGuard, but for the one of a
// name.
func deleteKernelLinks(f Files, but string) error {
	conn, err := routes.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := overlay.DeleteKernelLinks(conn, owner(f), but); err != nil {
		return fmt.Errorf("remove the interface that an earlier agent left: %w", err)
	}
	return nil
}

// IsKernelTunnel reports whether the interface of a name is the tunnel's and has the hooks of the
// kernel engine, whatever the settings say about interfaces. An earlier agent may have left it.
func (p *Service) IsKernelTunnel(name string) bool {
	s := p.config.Settings
	return s.Backend != BackendUser && name == s.Name && !p.ownsName.Load()
}

// Tunnel describes the tunnel, nil when there is none.
func (p *Service) Tunnel() *api.Tunnel {
	tunnel, shown := p.tunnel.Load(), p.shown.Load()
	if tunnel == nil || shown == nil {
		return nil
	}
	t := *shown
	if tunnel.user != nil {
		s := tunnel.user.Stats()
		t.DroppedQueueFull, t.DroppedNoSession = s.WaitFull, s.WaitLate
	}
	return &t
}
