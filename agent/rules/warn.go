package rules

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/configfile"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// Warnings returns warnings about the rules in force on this host: unknown names, missing tables,
// pipes and nat instances, empty tables, and rule sets without an enabled rule. It also warns of
// rules that would refuse the session of the caller, and of a rule file that others could change.
func (x *Explainer) Warnings(s *api.Session) ([]string, error) {
	now, p := x.inForce()
	ifs := x.Interfaces()
	all := warnings(now.Set, now.Strict, ifs, x.Labels())
	file, _ := x.Manager.file()
	if w := configfile.Warning(file); w != "" {
		all = append(all, w)
	}
	if s == nil {
		return all, nil
	}
	hook, ok := x.hookOf(*s, ifs)
	if !ok {
		return all, nil
	}
	e, err := x.engine(p, now.Set, ifs)
	if err != nil {
		return all, err
	}
	defer e.Close()
	refused, err := refuses(e, p, *s, hook)
	if refused != "" {
		all = append(all, refused)
	}
	return all, err
}

// SessionWarnings returns the warnings for the session of a request.
func (x *Explainer) SessionWarnings(q api.WarningsQuery) (api.Warnings, error) {
	all, err := x.Warnings(q.Session)
	if all == nil {
		all = []string{}
	}
	return api.Warnings{Version: api.Version, Warnings: all}, err
}

// Load replaces the rules like Manager.Load, and returns warnings about them.
func (x *Explainer) Load(ctx context.Context, r api.Load) (api.Done, error) {
	done, err := x.Manager.Load(ctx, r)
	if err != nil {
		return done, err
	}
	if done.Warnings, err = x.Warnings(r.Session); err != nil {
		// the rules are in force: the answer must not say otherwise
		done.Warnings = append(done.Warnings, "the rules were not examined: "+err.Error())
	}
	return done, nil
}

// warnings examines rules without evaluating any.
func warnings(set *rule.Ruleset, strict bool, ifs []firewall.Interface,
	labels map[string][]rule.TableEntry) (all []string) {
	active := set.Active()
	if len(active) == 0 && strict {
		all = append(all, "no rule is enabled: everything is denied")
	}
	known := map[string]bool{}
	for _, i := range ifs {
		known[i.Name] = true
	}
	taggedIn := slices.ContainsFunc(active, func(r *rule.Rule) bool {
		return r.Tag != 0 && !only(r, op.CondOut)
	})
	seen := map[string]bool{}
	warn := func(r *rule.Rule, about, format string, args ...any) {
		if !seen[about] { // by the first rule that names it
			seen[about] = true
			all = append(all, fmt.Sprintf("rule %d: ", r.Number)+fmt.Sprintf(format, args...))
		}
	}
	for i, r := range active {
		number := uint16(r.Action.Arg)
		if r.Action.Op == op.ActionCall && i+1 < len(active) && active[i+1].Number == r.Number {
			warn(r, fmt.Sprint("call in ", r.Number), "after return the other rules of this "+
				"number are tried, which ipfw skips; give them other numbers")
		}
		if taggedIn && asksTag(r) && !only(r, op.CondIn) {
			warn(r, "tags", "a forwarded packet has its tags of in on out only if it goes "+
				"straight to a pod; one that goes through the host's stack has lost them")
		}
		if deniesIPv4(r) {
			warn(r, "0.0.0.0/0", "0.0.0.0/0 is every IPv4 address, and IPv6 is not denied; in "+
				"ipfw it is any")
		}
		if r.Action.Op == op.ActionPipe && set.Pipes[number] == nil {
			warn(r, fmt.Sprint("pipe ", number), "there is no pipe %d, so it drops what matches; "+
				"weir fw pipe %d config bw 10Mbit/s", number, number)
		}
		if set.MissingNAT(r) {
			denyIn := " deny_in" // without it, and with one_pass, everything comes in
			if set.ManyPass {
				denyIn = ""
			}
			warn(r, fmt.Sprint("nat ", number), "there is no nat %d, so it drops what matches; "+
				"weir fw nat %d config if eth0%s", number, number, denyIn)
		} else if r.Action.Op == op.ActionNAT {
			if x := set.NATs[number]; x.Iface != "" && !known[x.Iface] {
				warn(r, "if "+x.Iface, "there is no interface %s, so nat %d has no address",
					x.Iface, number)
			}
			if !set.ManyPass && !set.NATs[number].DenyIn && letsIn(r) {
				warn(r, fmt.Sprint("in by nat ", number), "what comes in from anywhere and nat %d "+
					"does not translate passes as it is, as in ipfw; write deny_in, or disable "+
					"one_pass if later rules are to decide", number)
			}
		}
		if to := r.Action.NextHop; r.Action.Op == op.ActionFwd && isOwn(to.Addr(), ifs) &&
			!only(r, op.CondIn) {
			warn(r, "fwd "+to.String(), "what leaves and matches is dropped, since only what "+
				"comes in can go to a socket of this host; write in")
		}
		for _, t := range slices.Concat(r.Clauses()...) {
			switch t.Op {
			case op.CondRecv, op.CondXmit, op.CondVia:
				// pods come and go
				if !known[t.Name] && !strings.HasPrefix(t.Name, "pod:") {
					warn(r, "if "+t.Name, "there is no interface %s", t.Name)
				}
			case op.CondSrcTable, op.CondDstTable:
				_, there := set.Tables[t.Name]
				if _, label := labels[t.Name]; label || strings.Contains(t.Name, "=") {
					continue
				}
				if !there {
					warn(r, "table "+t.Name, "there is no table %s; weir fw table %s create",
						t.Name,
						t.Name)
				} else if set.Size(t.Name) == 0 {
					warn(r, "table "+t.Name, "table %s is empty", t.Name)
				}
			}
		}
	}
	return all
}

// isOwn reports whether an address is one of the host's.
func isOwn(a netip.Addr, ifs []firewall.Interface) bool {
	return a.IsLoopback() || slices.ContainsFunc(ifs, func(i firewall.Interface) bool {
		return slices.ContainsFunc(i.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}

// only reports whether a rule has a condition, such as in, for all that it matches.
func only(r *rule.Rule, is op.Cond) bool {
	return slices.ContainsFunc(r.Clauses(), func(c rule.Clause) bool {
		return len(c) == 1 && c[0].Op == is && !c[0].Not
	})
}

// asksTag reports whether a rule asks for a tag.
func asksTag(r *rule.Rule) bool {
	return slices.ContainsFunc(r.Clauses(), func(c rule.Clause) bool {
		return slices.ContainsFunc(c, func(t rule.Test) bool { return t.Op == op.CondTagged })
	})
}

// deniesIPv4 reports whether a rule refuses what comes from or goes to 0.0.0.0/0, without saying
// that it is about IPv4.
func deniesIPv4(r *rule.Rule) bool {
	switch r.Action.Op {
	case op.ActionDeny, op.ActionReset, op.ActionUnreach:
	default:
		return false
	}
	every := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	return !only(r, op.CondVersion) && slices.ContainsFunc(r.Clauses(), func(c rule.Clause) bool {
		return slices.ContainsFunc(c, func(t rule.Test) bool {
			return !t.Not && slices.Contains(t.Prefixes, every)
		})
	})
}

// letsIn reports whether a rule may match what comes in, from any source.
func letsIn(r *rule.Rule) bool {
	if len(r.Src) > 0 && !slices.ContainsFunc(r.Src, func(t rule.Test) bool {
		return t.Op == op.CondTrue
	}) {
		return false
	}
	for _, c := range r.Options {
		if len(c) != 1 {
			continue
		}
		switch c[0].Op {
		case op.CondOut, op.CondXmit, op.CondXmitGlob, op.CondXmitAny, op.CondXmitAddr:
			if !c[0].Not {
				return false
			}
		}
	}
	return true
}

// hookOf returns where the session comes in: at the interface with the address that it is
// connected to. Nothing is evaluated at an interface that is not guarded.
func (x *Explainer) hookOf(s api.Session, ifs []firewall.Interface) (firewall.Hook, bool) {
	for _, i := range ifs {
		at := slices.ContainsFunc(i.Addrs, func(p netip.Prefix) bool {
			return p.Addr() == s.To.Addr().WithZone("")
		})
		if zone := s.To.Addr().Zone(); at && (zone == "" || zone == i.Name) {
			return firewall.Hook{Dir: firewall.In, Recv: i.Index}, x.Guards(i.Name)
		}
	}
	return firewall.Hook{}, false
}

// refuses evaluates a new connection like the session's, and the answer to it, and returns which
// rule refuses it, "" if none does.
func refuses(e *soft.Engine, p *program.Program, s api.Session, in firewall.Hook) (string, error) {
	from := netip.AddrPortFrom(s.From.Addr().WithZone(""), s.From.Port())
	to := netip.AddrPortFrom(s.To.Addr().WithZone(""), s.To.Port())
	w := e.Worker(0)
	for _, step := range []struct {
		text, what string
		hook       firewall.Hook
	}{
		{fmt.Sprintf("tcp %s -> %s flags S", from, to), "new connections", in},
		{fmt.Sprintf("tcp %s -> %s flags SA ack 1", to, from), "the answers to connections",
			firewall.Hook{Dir: firewall.Out, Xmit: in.Recv}},
	} {
		_, b, err := build.ParseText(step.text)
		if err != nil {
			return "", err
		}
		v := w.Evaluate(&firewall.Input{Hook: step.hook}, b)
		if v.Pass {
			continue
		}
		by := v.Reason.String()
		if v.Rule != 0 {
			by = fmt.Sprintf("rule %d (%s)", v.Rule, p.Texts[v.Slot])
		}
		return fmt.Sprintf("this session could not come in again: %s refuses %s from %s to port %d",
			by, step.what, from.Addr(), to.Port()), nil
	}
	return "", nil
}
