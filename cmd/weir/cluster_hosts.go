package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/cluster"
)

// hostsAnswer is what node list -j prints.
type hostsAnswer struct {
	Version int `json:"version"`
	// Rules is the version that all hosts should enforce; "" while the cluster has none.
	Rules string       `json:"rules,omitempty"`
	Trial bool         `json:"trial,omitempty"`
	Hosts []hostAnswer `json:"hosts"`
}

type hostAnswer struct {
	Name     string         `json:"name"`
	Roles    []string       `json:"roles"`
	Ranges   []netip.Prefix `json:"ranges"`
	Enforced string         `json:"enforced,omitempty"`
	Problem  string         `json:"problem,omitempty"`
	Weir     string         `json:"weir,omitempty"`
}

func nodeListCommand(c *call) action {
	asJSON := c.json("")
	return func() error {
		return c.asAdmin(func(ctx context.Context, a *administrator) error {
			hosts, head, err := admin.Hosts(ctx, a)
			if err != nil {
				return err
			}
			answer := hostsOf(hosts, head)
			if *asJSON {
				return printJSON(c.out, answer)
			}
			return c.printHosts(answer)
		})
	}
}

func hostsOf(hosts []admin.Host, head *cluster.Head) hostsAnswer {
	a := hostsAnswer{Version: 1, Trial: head.Trial != nil, Hosts: []hostAnswer{}}
	if head.Number.Count > 0 {
		a.Rules = head.Number.String()
	}
	for _, h := range hosts {
		one := hostAnswer{Name: h.Name, Roles: append([]string{}, h.Roles...),
			Ranges: append([]netip.Prefix{}, h.Ranges...)}
		switch r := h.Report; {
		case r == nil:
			one.Problem = "it has not reported yet"
		default:
			one.Weir = r.Weir
			if r.Enforced.Count > 0 {
				one.Enforced = r.Enforced.String()
			}
			if r.Refused != nil {
				one.Problem = fmt.Sprintf("version %s is refused: %s", r.Refused, r.Why)
			} else if r.Held > 0 {
				one.Problem = fmt.Sprintf("%d removals are held", r.Held)
			} else if head.Number.Count > 0 && r.Enforced != head.Number {
				one.Problem = "it enforces another version"
			}
		}
		a.Hosts = append(a.Hosts, one)
	}
	return a
}

func (c *call) printHosts(a hostsAnswer) error {
	w := newTable(c.out)
	fmt.Fprintln(w, "NAME\tROLES\tRANGES\tRULES\tPROBLEM")
	for _, h := range a.Hosts {
		var ranges []string
		for _, r := range h.Ranges {
			ranges = append(ranges, r.String())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", c.show(h.Name), dash(strings.Join(h.Roles, ",")),
			dash(strings.Join(ranges, ",")), dash(h.Enforced), c.show(h.Problem))
	}
	return w.Flush()
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func prefixes(entries []rule.TableEntry) (all []netip.Prefix) {
	for _, e := range entries {
		all = append(all, e.Prefix)
	}
	return all
}
