package cluster

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// settle has everything reachable, waits until the hosts agree, and checks what they enforce.
func (c *chaos) settle(step int) time.Duration {
	began := time.Now()
	for _, h := range c.hosts {
		h.client.away(false)
	}
	last, deadline := "", time.Now().Add(5*time.Minute)
	for {
		if c.accept() {
			began = time.Now()
		}
		wrong := c.wrong()
		if wrong == "" {
			break
		}
		if last = wrong; time.Now().After(deadline) {
			for name, h := range c.hosts {
				h.Service.mu.Lock()
				c.t.Logf("%s: revision %d, epoch %d, last good %v, held %v, waiting %v, revoked %v",
					name, h.guarded.Stored().Revision, h.desired.Trust().Epoch,
					keysOf(h.desired.LastGood()), h.guarded.Held(), h.problems(),
					h.desired.Revoked())
				s, _ := c.model.Read(c.t.Context(), cluster.Watched, 0)
				c.t.Logf("differs from the store: %v", h.guarded.Stored().Diff(store.NewCopy(s)))
				h.Service.mu.Unlock()
			}
			c.t.Fatalf("step %d: after five minutes %s", step, wrong)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if took := time.Since(began); took > agreeTime {
		c.t.Errorf("step %d: until %v %s", step, took, last)
	}
	for _, h := range c.hosts {
		h.parts.mu.Lock()
		for _, text := range h.parts.history {
			if !c.texts[text] {
				c.t.Fatalf("step %d: %s enforced %q, which was never loaded", step, h.name, text)
			}
		}
		h.parts.history = nil
		h.parts.mu.Unlock()
	}
	return time.Since(began)
}

// accept has an administrator accept what hosts hold, and reports whether there was any. The answer
// waits for the disk, which may be busy.
func (c *chaos) accept() (any bool) {
	for _, h := range c.hosts {
		if h.Status().Held == 0 {
			continue
		}
		any = true
		if _, err := h.Accept(); err != nil {
			c.t.Errorf("%s: %v", h.name, err)
		}
	}
	return any
}

func keysOf(all []store.Entry) (keys []string) {
	for _, e := range all {
		keys = append(keys, e.Key)
	}
	return keys
}

func (h *chaosHost) problems() (all []string) {
	for _, p := range h.config.Problems.All() {
		all = append(all, p.What)
	}
	return all
}

// wrong compares what the hosts enforce with what the store has, by itself; "" if it is the same.
func (c *chaos) wrong() string {
	s, err := c.model.Read(c.t.Context(), cluster.Root, 0)
	if err != nil {
		return err.Error()
	}
	nodes, labels := map[string]cluster.Node{}, map[string]map[cluster.Label]bool{}
	var owners []cluster.Owner
	for _, e := range s.Entries {
		switch {
		case strings.HasPrefix(e.Key, cluster.NodeTree):
			n, err := cluster.Decode[cluster.Node](e.Value)
			if err != nil {
				return err.Error()
			}
			nodes[n.Name] = n
		case strings.HasPrefix(e.Key, cluster.RangeTree) && !strings.Contains(string(e.Value),
			"released"):
			addr, bits, _ := strings.Cut(strings.TrimPrefix(e.Key, cluster.RangeTree), "_")
			owners = append(owners, cluster.Owner{Range: netip.MustParsePrefix(addr + "/" + bits)})
		}
	}
	for i, a := range owners {
		for _, b := range owners[:i] {
			if a.Range.Overlaps(b.Range) {
				c.t.Fatalf("%v and %v have owners", a.Range, b.Range)
			}
		}
	}
	for _, e := range s.Entries {
		rest, ok := strings.CutPrefix(e.Key, cluster.PodsTree)
		name, chunk, _ := strings.Cut(rest, "/")
		n, member := nodes[name]
		if !ok || !member || chunk == "9999" || len(e.Value) == 0 {
			continue
		}
		p, err := cluster.Decode[cluster.Pods](e.Value)
		if err != nil {
			return err.Error()
		}
		if labels[name] == nil {
			labels[name] = map[cluster.Label]bool{}
		}
		for _, one := range p.Pods {
			for _, a := range one.Addrs {
				if n.Owns(a) {
					labels[name][cluster.Label{Table: "app=web", Addr: a}] = true
				}
			}
		}
	}
	set, err := c.inForce()
	if err != nil {
		return err.Error()
	}
	for _, h := range c.hosts {
		if wrong := h.wrong(set, nodes, labels); wrong != "" {
			return h.name + " " + wrong
		}
	}
	return ""
}

// inForce is what the head has.
func (c *chaos) inForce() (string, error) {
	digest := c.head.Scopes[cluster.All]
	parts, err := c.model.Read(c.t.Context(), fmt.Sprintf("%s%v/", cluster.TextTree, digest), 0)
	if err != nil {
		return "", err
	}
	text, err := cluster.DecodeText(digest, parts.Entries)
	if err != nil {
		return "", err
	}
	set, err := rule.ParseFile("all", text, new(rule.Names))
	return textOf(set), err
}

func (h *chaosHost) wrong(rules string, nodes map[string]cluster.Node,
	labels map[string]map[cluster.Label]bool) string {
	h.parts.mu.Lock()
	defer h.parts.mu.Unlock()
	if h.parts.rules != rules {
		return fmt.Sprintf("enforces %q, not %q", h.parts.rules, rules)
	}
	var own []string
	for _, p := range h.parts.pods {
		own = append(own, p.Addrs[0].String())
	}
	for l := range labels[h.name] {
		if !slices.Contains(own, l.Addr.String()) {
			return fmt.Sprintf("has not withdrawn %v", l)
		}
	}
	if len(own) != len(labels[h.name]) {
		return fmt.Sprintf("has %d pods, the store %d", len(own), len(labels[h.name]))
	}
	want := map[cluster.Label]bool{}
	for name, of := range labels {
		if name != h.name {
			maps.Copy(want, of)
		}
	}
	if !maps.Equal(h.parts.labels, want) {
		return fmt.Sprintf("has %d labels, not %d", len(h.parts.labels), len(want))
	}
	for name, n := range nodes {
		if p := h.parts.hosts[name]; name != h.name &&
			(p.Node == nil || p.Node.Serial != n.Serial) {
			return fmt.Sprintf("does not know %s", name)
		}
	}
	if len(h.parts.hosts) != len(nodes)-1 {
		return fmt.Sprintf("knows %d hosts of %d", len(h.parts.hosts), len(nodes)-1)
	}
	return ""
}
