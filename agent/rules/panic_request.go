package rules

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/agent/adopt"
	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/program"
)

// Panics answers requests that begin and end a panic.
type Panics struct {
	Explainer *Explainer
	Tunnel    Tunnel
	// IsMe reports whether the host takes the packets to an address.
	IsMe func(netip.Addr) bool
	// Guarded returns the interfaces that have hooks.
	Guarded func() []api.Interface
	// Adopt gives the engine states.
	Adopt func([]firewall.State) (int, error)
}

// Tunnel is the encrypted tunnel to other nodes.
type Tunnel interface {
	// Ranges are the addresses behind it.
	Ranges() []netip.Prefix
	// Port is its UDP port.
	Port() uint16
}

// Begin denies everything but the session that asks, and says what is left open.
func (x *Panics) Begin(ctx context.Context, q api.Panic) (api.Done, error) {
	s := q.Session
	if err := x.checkSession(s); err != nil && !q.Force {
		return api.Done{}, err
	}
	var tunnel uint16
	if s != nil && slices.ContainsFunc(x.Tunnel.Ranges(), func(r netip.Prefix) bool {
		return r.Contains(s.From.Addr().Unmap())
	}) {
		tunnel = x.Tunnel.Port()
	}
	m := x.Explainer.Manager
	if err := m.Panic(ctx, s, tunnel); err != nil {
		return api.Done{}, err
	}
	return m.done("everything is denied but:\n" + strings.Join(x.leftOpen(s, tunnel), "\n")), nil
}

// errNoSession refuses a panic that would cut its owner off.
type errNoSession struct{ why string }

func (e errNoSession) Error() string { return "nothing was changed: " + e.why }

// Hint returns what to do.
func (errNoSession) Hint() string {
	return "weir panic -f denies everything, and you may need the console to end it"
}

// checkSession refuses a session that the rules of a panic would not keep.
func (x *Panics) checkSession(s *api.Session) error {
	if s == nil {
		return errNoSession{"there is no ssh session to keep"}
	}
	if !s.From.IsValid() || !s.To.IsValid() {
		return errNoSession{"the session has no valid addresses"}
	}
	if !x.IsMe(bare(s.To.Addr())) {
		return errNoSession{fmt.Sprintf("the session to %s does not end at this host, so it "+
			"cannot be kept", s.To)}
	}
	return nil
}

// leftOpen lists what a panic does not deny, a line each.
func (x *Panics) leftOpen(s *api.Session, tunnel uint16) (all []string) {
	if s != nil {
		all = append(all, fmt.Sprintf("tcp %s to %s: this session; if the host boots, new ones "+
			"from %s to port %d", s.From, s.To, s.From.Addr(), s.To.Port()))
	}
	if tunnel != 0 {
		all = append(all, fmt.Sprintf("udp port %d: the tunnel that it comes through", tunnel))
	}
	if !x.Explainer.Options.NoEssential {
		all = append(all, "ARP, neighbour discovery and MLD")
	} else {
		all = append(all, "ARP")
	}
	if !x.Explainer.Options.NoDHCP {
		all = append(all, "this host's own DHCP clients")
	}
	guarded := x.Guarded()
	var open []string
	for _, i := range x.Explainer.Interfaces() {
		if !slices.ContainsFunc(guarded, func(g api.Interface) bool { return g.Index == i.Index }) {
			open = append(open, i.Name)
		}
	}
	if len(open) > 0 {
		all = append(all, "interfaces that are not guarded: "+strings.Join(open, ", "))
	}
	return all
}

// End brings the rules before the panic back.
func (x *Panics) End(ctx context.Context) (api.Done, error) {
	m := x.Explainer.Manager
	_, s, _ := m.InPanic()
	if err := m.EndPanic(ctx); err != nil {
		return api.Done{}, err
	}
	if s != nil {
		if err := x.adoptSession(s); err != nil {
			return api.Done{}, fmt.Errorf("the previous rules are in force, but this session may "+
				"be cut: %w", err)
		}
	}
	return m.done("the rules before the panic are in force"), nil
}

// adoptSession makes a state of the session that a panic has kept, as if the rules in force had
// let it begin: theirs are gone. Other connections that are still open do not come back.
func (x *Panics) adoptSession(s *api.Session) (err error) {
	x.Explainer.Manager.View(func(r Version, p *program.Program) {
		_, err = adopt.Connections(p, func() (*soft.Engine, error) {
			return x.Explainer.Engine(p, r.Set)
		}, func(all []firewall.State) (int, error) {
			return x.Adopt(slices.DeleteFunc(all, func(f firewall.State) bool {
				return f.From != withoutZone(s.From) || f.To != withoutZone(s.To)
			}))
		})
	})
	return err
}

func withoutZone(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(bare(a.Addr()), a.Port())
}
