package rules

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet/build"
)

// CutsOff evaluates offline, with rules that are not in force, new connections of this host to
// others and one to it, in both directions. It returns which rule would refuse which, "" for none.
func (x *Explainer) CutsOff(v Version, to []netip.AddrPort, session *api.Session) (string, error) {
	p, err := v.compile()
	if err != nil {
		return "", err
	}
	ifs := x.Interfaces()
	e, err := x.engine(p, v.Set, ifs)
	if err != nil {
		return "", err
	}
	defer e.Close()
	for _, remote := range to {
		why, err := x.refusesTo(e, p, remote, ifs)
		if err != nil || why != "" {
			return why, err
		}
	}
	if session == nil {
		return "", nil
	}
	if hook, ok := x.hookOf(*session, ifs); ok {
		return refuses(e, p, *session, hook)
	}
	return "", nil
}

// anyPort stands for the port that the kernel gives a new connection.
const anyPort = 40000

// refusesTo evaluates a new connection to another host, and the answer to it. Without a route there
// is none, and nothing is evaluated at an interface that is not guarded.
func (x *Explainer) refusesTo(e *soft.Engine, p *program.Program, to netip.AddrPort,
	ifs []firewall.Interface) (string, error) {
	conn, err := routes.Open()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	route, err := conn.RouteTo(to.Addr())
	if err != nil {
		return "", nil
	}
	at := slices.IndexFunc(ifs, func(i firewall.Interface) bool {
		return i.Index == uint32(route.Link)
	})
	if at < 0 || !x.Guards(ifs[at].Name) || !route.Src.IsValid() {
		return "", nil
	}
	from := netip.AddrPortFrom(route.Src, anyPort)
	w, link := e.Worker(0), uint32(route.Link)
	for _, step := range []struct {
		text string
		hook firewall.Hook
	}{
		{fmt.Sprintf("tcp %s -> %s flags S", from, to), firewall.Hook{Dir: firewall.Out, Xmit: link}},
		{fmt.Sprintf("tcp %s -> %s flags SA ack 1", to, from),
			firewall.Hook{Dir: firewall.In, Recv: link}},
	} {
		_, b, err := build.ParseText(step.text)
		if err != nil {
			return "", err
		}
		if v := w.Evaluate(&firewall.Input{Hook: step.hook}, b); !v.Pass {
			by := v.Reason.String()
			if v.Rule != 0 {
				by = fmt.Sprintf("rule %d (%s)", v.Rule, p.Texts[v.Slot])
			}
			return fmt.Sprintf("%s would cut this host off from %s", by, to), nil
		}
	}
	return "", nil
}
