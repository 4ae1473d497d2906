package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirnet/weir/internal/tty"
	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/cluster"
)

// clusterFlags select what fw list prints of the cluster instead of the rules of this node.
type clusterFlags struct{ node, scope string }

func (c *call) clusterFlags() *clusterFlags {
	var f clusterFlags
	c.StringVar(&f.node, "node", "", "of a cluster, the rules that the host `NAME` has by the "+
		"newest version, with their scopes")
	c.StringVar(&f.scope, "on", "",
		"of a cluster, the text of `SCOPE` (all, role:NAME, node:NAME) as it was loaded")
	return &f
}

// given reports whether the cluster's rules are asked for.
func (f *clusterFlags) given() bool { return f.node != "" || f.scope != "" }

// clusterRules is what fw list --node -j prints.
type clusterRules struct {
	Version int           `json:"version"`
	Rules   string        `json:"rules"` // the version of the rules
	Node    string        `json:"node"`
	List    []clusterRule `json:"list"`
}

type clusterRule struct {
	Number uint16 `json:"number"`
	Set    uint8  `json:"set"`
	Scope  string `json:"scope"`
	Text   string `json:"text"`
}

// clusterText is what fw list --on -j prints.
type clusterText struct {
	Version int    `json:"version"`
	Rules   string `json:"rules"` // the version of the rules
	Scope   string `json:"scope"`
	Text    string `json:"text"`
}

// listOfCluster prints rules that the store has.
func (c *call) listOfCluster(of *clusterFlags, f listFlags, args []string) error {
	if of.node != "" && of.scope != "" || len(args) > 0 || f != (listFlags{json: f.json}) {
		return c.wrong("give --node NAME [-j] or --on SCOPE [-j], and nothing else")
	}
	if of.scope != "" {
		scope, err := cluster.ParseScope(of.scope)
		if err != nil {
			return c.wrong("--on: %v", err)
		}
		return c.asAdmin(func(ctx context.Context, a *administrator) error {
			return c.printText(ctx, a, scope, f.json)
		})
	}
	return c.asAdmin(func(ctx context.Context, a *administrator) error {
		return c.printRulesOf(ctx, a, of.node, f.json)
	})
}

// printText prints the text of a scope.
func (c *call) printText(ctx context.Context, a *administrator, scope cluster.Scope,
	asJSON bool) error {
	text, head, err := admin.Text(ctx, a, scope)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(c.out, clusterText{1, head.Number.String(), string(scope), text})
	}
	for line := range strings.Lines(text) {
		if tty.IsTerminal(c.out) { // it may hold anything; a file is loaded again
			line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    ")
			line = c.show(line) + "\n"
		}
		fmt.Fprint(c.out, line)
	}
	return nil
}

// printRulesOf prints the rules of a host, with their scopes.
func (c *call) printRulesOf(ctx context.Context, a *administrator, node string, asJSON bool) error {
	all, head, err := admin.Rules(ctx, a, node, ruleParser())
	if err != nil {
		return err
	}
	answer := clusterRules{Version: 1, Rules: head.Number.String(), Node: node,
		List: []clusterRule{}}
	widest := 0
	for _, r := range all {
		answer.List = append(answer.List, clusterRule{r.Number, r.Set, string(r.Scope), r.Text()})
		widest = max(widest, len(r.Scope))
	}
	if asJSON {
		return printJSON(c.out, answer)
	}
	for _, r := range answer.List {
		fmt.Fprintf(c.out, "%05d %-*s %s\n", r.Number, widest, r.Scope, c.show(r.Text))
	}
	return nil
}
