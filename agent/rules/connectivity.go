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
	"github.com/weirnet/weir/rule"
)

// CheckConnectivity evaluates offline, with rules that are not in force, new connections and the
// answers to them. It returns which rule would refuse one, "" for none. What another host needs is
// what that host says of itself. It does not count if the rules in force refuse it too. Otherwise a
// stolen host could prevent every version by the address that it names. A session is that of the
// one who loads the rules, and may be nil.
func (x *Explainer) CheckConnectivity(v Version, needed []api.RequiredConn,
	session *api.Session) (string, error) {
	p, err := v.compile(new(rule.Cache))
	if err != nil {
		return "", err
	}
	ifs := x.Interfaces()
	e, err := x.engine(p, v.Set, ifs)
	if err != nil {
		return "", err
	}
	defer e.Close()
	var refused []refusedConn
	for _, n := range needed {
		why, err := x.refusesConn(e, p, n, ifs)
		if err != nil || why != "" && !n.From.IsValid() {
			return why, err
		}
		if why != "" {
			refused = append(refused, refusedConn{n, why})
		}
	}
	if why := x.passesNow(refused, ifs); why != "" {
		return why, nil
	}
	if session == nil {
		return "", nil
	}
	if hook, ok := x.hookOf(*session, ifs); ok {
		return refuses(e, p, *session, hook)
	}
	return "", nil
}

// refusedConn is a connection of another host that rules would refuse, and why.
type refusedConn struct {
	needed api.RequiredConn
	why    string
}

// passesNow returns why the first of the connections would be refused that the rules in force let
// pass, "" if there is none.
func (x *Explainer) passesNow(refused []refusedConn, ifs []firewall.Interface) string {
	if len(refused) == 0 {
		return ""
	}
	now, p := x.inForce()
	if p == nil {
		return refused[0].why
	}
	e, err := x.engine(p, now.Set, ifs)
	if err != nil {
		return refused[0].why
	}
	defer e.Close()
	for _, c := range refused {
		why, err := x.refusesConn(e, p, c.needed, ifs)
		if err != nil || why == "" {
			return c.why
		}
	}
	return ""
}

// anyPort stands for the port that the kernel gives a new connection.
const anyPort = 40000

// refusesConn evaluates one connection. Without a route to the other host there is none, and
// nothing is evaluated at an interface that is not guarded.
func (x *Explainer) refusesConn(e *soft.Engine, p *program.Program, n api.RequiredConn,
	ifs []firewall.Interface) (string, error) {
	remote, who := n.To.Addr(), "this host"
	if n.From.IsValid() {
		remote, who = n.From, n.From.String()
	}
	link, own, err := routes.Lookup(remote)
	if err != nil {
		return "", nil
	}
	at := slices.IndexFunc(ifs, func(i firewall.Interface) bool {
		return i.Index == link
	})
	if at < 0 || !x.Guards(ifs[at].Name) || !n.From.IsValid() && !own.IsValid() {
		return "", nil
	}
	in := firewall.Hook{Dir: firewall.In, Recv: ifs[at].Index}
	out := firewall.Hook{Dir: firewall.Out, Xmit: ifs[at].Index}
	from, first, second := netip.AddrPortFrom(n.From, anyPort), in, out
	if !n.From.IsValid() {
		from, first, second = netip.AddrPortFrom(own, anyPort), out, in
	}
	w := e.Worker(0)
	for _, step := range []struct {
		text string
		hook firewall.Hook
	}{
		{fmt.Sprintf("tcp %s -> %s flags S", from, n.To), first},
		{fmt.Sprintf("tcp %s -> %s flags SA ack 1", n.To, from), second},
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
			return fmt.Sprintf("%s would cut %s off from %s", by, who, n.To), nil
		}
	}
	return "", nil
}
