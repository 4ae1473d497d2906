package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
)

func statusCommand(c *call) action {
	asJSON := c.json("")
	wait := c.Duration("wait", 0, "wait up to `TIME` (10s) for the node to answer and be healthy")
	return func() error {
		s, err := c.healthy(*wait)
		if err != nil {
			return err
		}
		s.Warnings = append(s.Warnings, c.ruleWarnings()...)
		if *asJSON {
			if err := printJSON(c.out, s); err != nil {
				return err
			}
		} else {
			printStatus(c, s)
		}
		if !s.Healthy {
			return statusError(1)
		}
		return nil
	}
}

// healthy reads the status until the node is healthy or the time is up: a stopped process accepts
// the request and never answers.
func (c *call) healthy(wait time.Duration) (s api.Status, err error) {
	ctx := c.ctx
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	for {
		var now api.Status
		bad := c.client().Get(ctx, "/v1/status", &now)
		// else the time was up: the previous answer says more
		if bad == nil || ctx.Err() == nil || err == nil && s.PID == 0 {
			s, err = now, c.failed(bad)
		}
		if err == nil && s.Healthy || wait == 0 {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func backendWords(t *api.Tunnel) string {
	if t.Backend == "kernel" {
		return "the kernel"
	}
	return "the agent"
}

func printStatus(c *call, s api.Status) {
	state := "healthy"
	if !s.Healthy {
		state = "NOT healthy"
	}
	fmt.Fprintf(c.out, "%s, agent %d up for %v, weir %s\n", state, s.PID,
		time.Since(s.Since).Round(time.Second), dash(s.Weir))
	for _, p := range s.Problems {
		fmt.Fprintf(c.out, "problem: %s\n", c.show(p.What))
		if p.Advice != "" {
			fmt.Fprintf(c.out, "hint: %s\n", c.show(p.Advice))
		}
	}
	for _, w := range s.Warnings {
		fmt.Fprintf(c.out, "warning: %s\n", c.show(w))
	}
	var names []string
	for _, i := range s.Interfaces {
		names = append(names, fmt.Sprintf("%s (%s)", c.show(i.Name), i.Hook))
	}
	if names == nil {
		names = []string{"none"}
	}
	fmt.Fprintf(c.out, "interfaces: %s\n", strings.Join(names, ", "))
	for _, i := range s.Interfaces {
		if len(i.Before) > 0 {
			fmt.Fprintf(c.out, "before the rules at %s: %s\n", c.show(i.Name),
				beforeWords(c, i.Before))
		}
	}
	if line := skippedLine(c, s.Skipped); line != "" {
		fmt.Fprintln(c.out, line)
	}
	fmt.Fprintf(c.out, "rules: %d from %s, default %s\n", s.Rules, c.show(s.Source), s.Default)
	for _, f := range s.Forwards {
		fmt.Fprintf(c.out, "forward: %s %s to %s%s\n", f.Proto, f.Listen, f.To,
			more(f.Ports))
	}
	for _, m := range s.Masquerades {
		to := m.To
		if to == "" {
			to = "the address of the interface"
		}
		fmt.Fprintf(c.out, "masquerade: %s as %s\n", m.Source, to)
	}
	for _, b := range s.Binats {
		fmt.Fprintf(c.out, "binat: %s to %s\n", b.Listen, b.To)
	}
	if t := s.Tunnel; t != nil {
		fmt.Fprintf(c.out, "tunnel: %s, WireGuard of %s\n", c.show(t.Interface), backendWords(t))
		if t.Reason != "" {
			fmt.Fprintf(c.out, "  not the kernel's: %s\n", c.show(t.Reason))
		}
		if line := waitedInVain(t.DroppedQueueFull, t.DroppedNoSession); line != "" {
			fmt.Fprintf(c.out, "  %s; weir peer list\n", line)
		}
	}
	if s.Cluster != nil {
		printCluster(c, s.Cluster)
	}
	if s.Trial != nil {
		fmt.Fprintf(c.out, "trial: %s, for another %.0f s; keep it: weir fw confirm; "+
			"go back now: weir fw revert\n",
			c.show(s.Trial.Name), s.Trial.LeftSeconds)
	}
	if p := s.Panic; p != nil {
		kept := "no session is kept"
		if p.Session != nil {
			kept = fmt.Sprintf("the session from %s to %s is kept", p.Session.From,
				p.Session.To)
		}
		fmt.Fprintf(c.out, "panic: since %s, %s; weir panic --end\n",
			p.Since.Local().Format(time.DateTime), kept)
	}
	fmt.Fprintf(c.out, "states: %d of %d", s.States, s.StatesMax)
	if s.Adopted > 0 {
		fmt.Fprintf(c.out, ", %d adopted at the start", s.Adopted)
	}
	fmt.Fprintln(c.out)
	if isNotable(&s.Table) {
		printTable(c, &s.Table, "")
	}
	for _, r := range slices.Sorted(maps.Keys(s.Reasons)) {
		fmt.Fprintf(c.out, "decided before or beside the rules: %s %d\n", r, s.Reasons[r])
	}
}

// more says how many ports follow the first one.
func more(ports int) string {
	switch ports {
	case 1:
		return ""
	case 2:
		return ", and the port after it"
	}
	return fmt.Sprintf(", and the %d ports after it", ports-1)
}

// printCluster says how old the copy of the store is.
func printCluster(c *call, k *api.Cluster) {
	heard := "not heard since the start"
	if k.SilentSeconds != nil {
		heard = fmt.Sprintf("silent %.0f s", *k.SilentSeconds)
	}
	if k.Connected {
		heard = "connected"
	}
	fmt.Fprintf(c.out, "cluster: host %s of %d, rules version %s\n", c.show(k.Name), k.Hosts,
		k.Version)
	fmt.Fprintf(c.out, "store: %s %s, copy of revision %d", c.show(dash(k.Store)), heard,
		k.Revision)
	if k.StorePercent > 0 {
		fmt.Fprintf(c.out, ", %d %% full", k.StorePercent)
	}
	fmt.Fprintln(c.out)
	if k.StoreError != "" {
		fmt.Fprintf(c.out, "store not connected: %s\n", c.show(k.StoreError))
	}
	if k.Held > 0 {
		fmt.Fprintf(c.out, "held: %d keys that the store lost, for %.0f s\n", k.Held, k.HeldSeconds)
	}
	if k.Claims > 0 {
		fmt.Fprintf(c.out, "refused values of the store: %d\n", k.Claims)
	}
}

// beforeWords names the programs of others that packets meet first.
func beforeWords(c *call, all []api.Before) string {
	var words []string
	for _, b := range all {
		word := fmt.Sprintf("%s %s %s", b.Hook, b.Direction, c.show(dash(b.Name)))
		if b.Program != 0 {
			word += fmt.Sprintf(" (id %d)", b.Program)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// shownSkipped is how many interfaces of other programs the status names; -j names all.
const shownSkipped = 6

// skippedLine names the interfaces that are not guarded for the sake of their makers.
func skippedLine(c *call, all []api.Skipped) string {
	if len(all) == 0 {
		return ""
	}
	var names []string
	for _, s := range all[:min(len(all), shownSkipped)] {
		names = append(names, fmt.Sprintf("%s (%s)", c.show(s.Name), s.Maker))
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return "not guarded, made for containers: " + strings.Join(names, ", ")
}
