package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// Host is a host and its report.
type Host struct {
	cluster.Node
	Report *cluster.Report // nil: none
}

// Hosts returns all hosts with their reports, by name, and the version that they should enforce.
func Hosts(ctx context.Context, s store.Store) ([]Host, *cluster.Head, error) {
	st, err := read(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	reports, err := reports(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	hosts := make([]Host, len(st.nodes))
	for i, n := range st.nodes {
		hosts[i].Node = n
		if r, ok := reports[n.Name]; ok {
			hosts[i].Report = &r
		}
	}
	slices.SortFunc(hosts, func(a, b Host) int { return cmp.Compare(a.Name, b.Name) })
	return hosts, &st.head, nil
}

// reports returns the reports of all hosts. One that cannot be read is left out: its host is
// silent.
func reports(ctx context.Context, s store.Store) (map[string]cluster.Report, error) {
	all, err := s.Read(ctx, cluster.ReportTree, 0)
	if err != nil {
		return nil, err
	}
	reports := map[string]cluster.Report{}
	for _, e := range all.Entries {
		if r, err := cluster.Decode[cluster.Report](e.Value); err == nil {
			reports[strings.TrimPrefix(e.Key, cluster.ReportTree)] = r
		}
	}
	return reports, nil
}

// Outcome is the result of a version on the hosts.
type Outcome struct {
	Enforced []string          // hosts that enforce it, or a later one
	Refused  map[string]string // hosts that do not, and why
	Silent   []string          // hosts that have not said
}

// Await waits until every host has reported the result of a version, or the context ends.
func Await(ctx context.Context, s store.Store, n cluster.Number, hosts []string) (Outcome, error) {
	all, err := s.Read(ctx, cluster.ReportTree, 0)
	if err != nil {
		return Outcome{}, err
	}
	reports := store.NewCopy(all)
	if o := outcome(reports, n, hosts); len(o.Silent) == 0 {
		return o, nil
	}
	for b, err := range s.Watch(ctx, cluster.ReportTree, all.Revision) {
		if err != nil {
			return outcome(reports, n, hosts), fmt.Errorf("wait for the hosts: %w", err)
		}
		reports.Apply(b)
		if o := outcome(reports, n, hosts); len(o.Silent) == 0 {
			return o, nil
		}
	}
	return outcome(reports, n, hosts), nil
}

func outcome(reports *store.Copy, n cluster.Number, hosts []string) Outcome {
	o := Outcome{Refused: map[string]string{}}
	for _, name := range hosts {
		e, _ := reports.Get(cluster.ReportTree + name)
		r, err := cluster.Decode[cluster.Report](e.Value)
		switch {
		case err == nil && r.Refused != nil && r.Refused.Compare(n) >= 0:
			o.Refused[name] = r.Why
		case err == nil && r.Enforced.Compare(n) >= 0:
			o.Enforced = append(o.Enforced, name)
		default:
			o.Silent = append(o.Silent, name)
		}
	}
	slices.Sort(o.Enforced)
	slices.Sort(o.Silent)
	return o
}
