package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/agent/adopt"
	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/program"
)

// panic denies everything but the session that asks, and says what is left open.
func (n *Node) panic(ctx context.Context, q api.Panic) (api.Done, error) {
	s := q.Session
	if err := n.checkSession(s); err != nil && !q.Force {
		return api.Done{}, err
	}
	var tunnel uint16
	if s != nil && slices.ContainsFunc(n.peers.Ranges(), func(r netip.Prefix) bool {
		return r.Contains(s.From.Addr().Unmap())
	}) {
		tunnel = n.peers.Port()
	}
	if err := n.rules.Panic(ctx, s, tunnel); err != nil {
		return api.Done{}, err
	}
	return n.panicDone("everything is denied but:\n" +
		strings.Join(n.leftOpen(s, tunnel), "\n")), nil
}

// errNoSession refuses a panic that would cut its owner off.
type errNoSession struct{ why string }

func (e errNoSession) Error() string { return "nothing was changed: " + e.why }

// Hint returns what to do.
func (errNoSession) Hint() string {
	return "weir panic -f denies everything, and you may need the console to end it"
}

// checkSession refuses a session that the rules of a panic would not keep.
func (n *Node) checkSession(s *api.Session) error {
	if s == nil {
		return errNoSession{"no ssh session was found that could be spared"}
	}
	if !s.From.IsValid() || !s.To.IsValid() {
		return errNoSession{"the session has no valid addresses"}
	}
	if !n.links.IsMine(s.To.Addr().Unmap().WithZone("")) {
		return errNoSession{fmt.Sprintf("the session to %s does not end at this host, so it "+
			"cannot be spared", s.To)}
	}
	return nil
}

// leftOpen lists what a panic does not deny, a line each.
func (n *Node) leftOpen(s *api.Session, tunnel uint16) (all []string) {
	if s != nil {
		all = append(all, fmt.Sprintf("tcp %s to %s: this session; if the host boots, new ones "+
			"from "+
			"%s to port %d", s.From, s.To, s.From.Addr(), s.To.Port()))
	}
	if tunnel != 0 {
		all = append(all, fmt.Sprintf("udp port %d: the tunnel that it comes through", tunnel))
	}
	settings := n.config.Settings.Engine
	if !settings.NoEssential {
		all = append(all, "ARP, neighbour discovery and MLD")
	} else {
		all = append(all, "ARP")
	}
	if !settings.NoDHCP {
		all = append(all, "this host's own DHCP clients")
	}
	guarded, _ := n.hooks.Interfaces()
	var open []string
	for _, i := range n.links.Interfaces() {
		if !slices.ContainsFunc(guarded, func(g api.Interface) bool { return g.Index == i.Index }) {
			open = append(open, i.Name)
		}
	}
	if len(open) > 0 {
		all = append(all, "interfaces that are not guarded: "+strings.Join(open, ", "))
	}
	return all
}

// endPanic brings the rules before the panic back.
func (n *Node) endPanic(ctx context.Context) (api.Done, error) {
	_, s, _ := n.rules.InPanic()
	if err := n.rules.EndPanic(ctx); err != nil {
		return api.Done{}, err
	}
	if s != nil {
		if err := n.adoptSession(s); err != nil {
			return api.Done{}, fmt.Errorf("the rules before are in force, but this session may be "+
				"cut: %w", err)
		}
	}
	return n.panicDone("the rules before the panic are in force"), nil
}

// adoptSession makes a state of the session that a panic has spared, as if the rules in force had
// let it begin: theirs are gone. Other connections that are still open do not come back.
func (n *Node) adoptSession(s *api.Session) (err error) {
	n.rules.View(func(r rules.Version, p *program.Program) {
		_, err = adopt.Connections(p, func() (*soft.Engine, error) {
			return n.explain.Engine(p, r.Set)
		}, func(all []firewall.State) (int, error) {
			return n.engine.Adopt(slices.DeleteFunc(all, func(f firewall.State) bool {
				return f.From != withoutZone(s.From) || f.To != withoutZone(s.To)
			}))
		})
	})
	return err
}

func withoutZone(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

func (n *Node) panicDone(message string) api.Done {
	return api.Done{Version: api.Version, Message: message, Rules: n.rules.Count()}
}
