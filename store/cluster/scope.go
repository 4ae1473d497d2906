package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirnet/weir/rule"
)

// Scope is where rules apply: "all" hosts, "role:R" or "node:N".
type Scope string

// All is the scope of every host.
const All Scope = "all"

// RoleScope returns the scope of the hosts with a role.
func RoleScope(role string) Scope { return Scope("role:" + role) }

// NodeScope returns the scope of one host.
func NodeScope(name string) Scope { return Scope("node:" + name) }

// ParseScope parses a scope as users write it.
func ParseScope(text string) (Scope, error) {
	if text == string(All) {
		return All, nil
	}
	of, name, ok := strings.Cut(text, ":")
	if !ok || of != "role" && of != "node" {
		return "", fmt.Errorf("%q is not a scope: all, role:NAME or node:NAME", text)
	}
	if err := CheckName(name); err != nil {
		return "", fmt.Errorf("scope %s: %w", text, err)
	}
	return Scope(text), nil
}

// Host is a host as far as scopes concern it.
type Host struct {
	Name  string
	Roles []string
}

// Scopes returns the scopes that apply to a host: all, its roles by name, its own.
func (h Host) Scopes() []Scope {
	scopes := []Scope{All}
	roles := slices.Clone(h.Roles)
	slices.Sort(roles)
	for _, role := range slices.Compact(roles) {
		scopes = append(scopes, RoleScope(role))
	}
	return append(scopes, NodeScope(h.Name))
}

// Version is the rules of every scope that has some.
type Version map[Scope]*rule.Ruleset

// For returns the rules of a host: those of its scopes, ordered by number. It refuses two scopes
// with the same number, table, pipe or nat, or of which one disables a set that the other one uses.
// Every clash is reported with both places.
func (v Version) For(h Host) (*rule.Ruleset, error) {
	scopes := v.of(h)
	var clashes []error
	for i, a := range scopes {
		for _, b := range scopes[i+1:] {
			clashes = append(clashes, v.clashes(a, b)...)
		}
	}
	if len(clashes) > 0 {
		return nil, errors.Join(clashes...)
	}
	merged := &rule.Ruleset{}
	for _, s := range scopes {
		if err := v.lasting(s); err != nil {
			return nil, err
		}
		merged.Rules = append(merged.Rules, v[s].Rules...)
		merged.Disabled |= v[s].Disabled
		merged.ManyPass = merged.ManyPass || v[s].ManyPass
		for number, x := range v[s].Pipes {
			if merged.Pipes == nil {
				merged.Pipes = map[uint16]*rule.Pipe{}
			}
			merged.Pipes[number] = x
		}
		for number, x := range v[s].NATs {
			if merged.NATs == nil {
				merged.NATs = map[uint16]*rule.NAT{}
			}
			merged.NATs[number] = x
		}
		for name, table := range v[s].Tables {
			if merged.Tables == nil {
				merged.Tables = map[string]rule.Table{}
			}
			merged.Tables[name] = maps.Clone(table)
			if l := v[s].Lists[name]; l != nil {
				if merged.Lists == nil {
					merged.Lists = map[string]*rule.List{}
				}
				merged.Lists[name] = l
			}
		}
	}
	slices.SortStableFunc(merged.Rules, func(a, b *rule.Rule) int {
		return cmp.Compare(a.Number, b.Number)
	})
	return merged, nil
}

// lasting refuses members of tables with a timeout: each host that starts would begin it again.
func (v Version) lasting(s Scope) error {
	timed := slices.Sorted(maps.Keys(v[s].Deadlines))
	if len(timed) == 0 {
		return nil
	}
	return fmt.Errorf("scope %s: table %s has a member with a timeout, which a version of a "+
		"cluster cannot have", s, timed[0])
}

// of returns the scopes of a host that have rules.
func (v Version) of(h Host) []Scope {
	return slices.DeleteFunc(h.Scopes(), func(s Scope) bool { return v[s] == nil })
}

// Check returns every clash that a host has, each once. A version that Check refuses is not
// stored, and neither is a change of roles after which Check refuses the version.
func (v Version) Check(hosts []Host) error {
	type pair struct{ a, b Scope }
	seen := map[pair]bool{}
	var clashes []error
	for _, s := range slices.Sorted(maps.Keys(v)) {
		if err := v.lasting(s); err != nil {
			clashes = append(clashes, err)
		}
	}
	for _, h := range hosts {
		scopes := v.of(h)
		for i, a := range scopes {
			for _, b := range scopes[i+1:] {
				if !seen[pair{a, b}] {
					seen[pair{a, b}] = true
					clashes = append(clashes, v.clashes(a, b)...)
				}
			}
		}
	}
	return errors.Join(clashes...)
}

// ClashError names an element that two scopes of one host both have.
type ClashError struct {
	What   string   // "rule 100", "table web", "set 3"
	Scopes [2]Scope // of one host, in the order of Host.Scopes
	Places [2]string
}

func (e *ClashError) Error() string {
	return fmt.Sprintf("%s is in scope %s (%s) and in scope %s (%s): a host with both could not "+
		"order them; change one", e.What, e.Scopes[0], e.Places[0], e.Scopes[1], e.Places[1])
}

// clashes returns what the scopes a and b both have.
func (v Version) clashes(a, b Scope) (found []error) {
	report := func(what, placeA, placeB string) {
		found = append(found, &ClashError{what, [2]Scope{a, b}, [2]string{placeA, placeB}})
	}
	x, y := v[a], v[b]
	first := map[uint16]*rule.Rule{}
	for _, r := range y.Rules {
		if first[r.Number] == nil {
			first[r.Number] = r
		}
	}
	for i, r := range x.Rules {
		other := first[r.Number]
		if other != nil && (i == 0 || x.Rules[i-1].Number != r.Number) {
			report(fmt.Sprintf("rule %d", r.Number), place(r), place(other))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.Tables)) {
		if _, ok := y.Tables[name]; ok {
			report("table "+name, "defined there", "defined there")
		}
	}
	for _, number := range slices.Sorted(maps.Keys(x.Pipes)) {
		if _, ok := y.Pipes[number]; ok {
			report(fmt.Sprintf("pipe %d", number), "configured there", "configured there")
		}
	}
	for _, number := range slices.Sorted(maps.Keys(x.NATs)) {
		if _, ok := y.NATs[number]; ok {
			report(fmt.Sprintf("nat %d", number), "configured there", "configured there")
		}
	}
	for set := range 32 {
		bit := uint32(1) << set
		switch what := fmt.Sprintf("set %d", set); {
		case x.Disabled&bit != 0 && y.Disabled&bit == 0:
			if r := inSet(y, set); r != nil {
				report(what, "disabled there", place(r))
			}
		case y.Disabled&bit != 0 && x.Disabled&bit == 0:
			if r := inSet(x, set); r != nil {
				report(what, place(r), "disabled there")
			}
		}
	}
	return found
}

func inSet(s *rule.Ruleset, set int) *rule.Rule {
	i := slices.IndexFunc(s.Rules, func(r *rule.Rule) bool { return int(r.Set) == set })
	if i < 0 {
		return nil
	}
	return s.Rules[i]
}

func place(r *rule.Rule) string {
	if r.Pos.File == "" {
		return fmt.Sprintf("line %d", r.Pos.Line)
	}
	return fmt.Sprintf("%s:%d", r.Pos.File, r.Pos.Line)
}
