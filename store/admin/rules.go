package admin

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// Text returns the text of a scope in the newest version, as it was loaded.
func Text(ctx context.Context, s store.Store, scope cluster.Scope) (string, *cluster.Head, error) {
	st, err := read(ctx, s)
	if err != nil {
		return "", nil, err
	}
	digest, ok := st.head.Scopes[scope]
	if !ok {
		return "", nil, fmt.Errorf("version %v has no rules of scope %s", st.head.Number, scope)
	}
	text, err := fetch(ctx, s, digest)
	return text, &st.head, err
}

// ScopedRule is a rule of a host and the scope that it comes from.
type ScopedRule struct {
	*rule.Rule
	Scope cluster.Scope
}

// Rules returns the rules that a host has by the newest version, in their order.
func Rules(ctx context.Context, s store.Store, name string,
	parse func(name, text string) (*rule.Ruleset, error)) ([]ScopedRule, *cluster.Head, error) {
	st, err := read(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	at := slices.IndexFunc(st.nodes, func(n cluster.Node) bool { return n.Name == name })
	if at < 0 {
		return nil, nil, fmt.Errorf("the cluster has no host %s", name)
	}
	host := st.nodes[at].Host()
	v, from := cluster.Version{}, map[*rule.Rule]cluster.Scope{}
	for _, scope := range host.Scopes() {
		digest, ok := st.head.Scopes[scope]
		if !ok {
			continue
		}
		text, err := fetch(ctx, s, digest)
		if err != nil {
			return nil, nil, fmt.Errorf("the rules of scope %s: %w", scope, err)
		}
		if v[scope], err = parse(string(scope), text); err != nil {
			return nil, nil, err
		}
		for _, r := range v[scope].Rules {
			from[r] = scope
		}
	}
	merged, err := v.For(host)
	if err != nil {
		return nil, nil, err
	}
	all := make([]ScopedRule, len(merged.Rules))
	for i, r := range merged.Rules {
		all[i] = ScopedRule{r, from[r]}
	}
	return all, &st.head, nil
}
