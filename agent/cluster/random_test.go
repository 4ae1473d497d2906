package cluster

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// chaos is a cluster to which everything happens.
type chaos struct {
	*lab
	random  *rand.Rand
	pool    cluster.Pool
	hosts   map[string]*chaosHost // members that run
	serials map[string]byte
	texts   map[string]bool // what was loaded, as it is in force
	backup  int64           // a revision to go back to; 0: none
	saved   cluster.Head    // the head then
}

type chaosHost struct {
	*running
	name, dir string
	serial    byte
	parts     *parts
	ranges    netip.Prefix
}

// agreeTime is how long hosts may take to agree once the store is reachable and quiet, and what
// they hold is accepted. It is less than retryEvery, so that nothing had to be tried again.
// The clock is that of a bubble of synctest: what a busy machine takes does not count.
const agreeTime = 4 * time.Second

// TestRandom: hosts join and leave, rules and pods change, versions are on trial, hosts are cut off
// and killed, the store is put back and cut off. Soon after the store is reachable and quiet, all
// hosts enforce one version and the same pods. Nothing was in force meanwhile that was not loaded,
// and no range has two owners.
func TestRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { chooseSteps(t, 100) })
}

// TestLongRandom has more steps.
func TestLongRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { chooseSteps(t, 1000) })
}

func chooseSteps(t *testing.T, steps int) {
	t.Helper()
	seed := testrand.Seed(t)
	c := &chaos{lab: newLab(t), random: rand.New(rand.NewPCG(seed, 1)),
		pool:  cluster.Pool{Supernet: netip.MustParsePrefix("10.64.0.0/21"), Bits: 24},
		hosts: map[string]*chaosHost{}, serials: map[string]byte{},
		texts: map[string]bool{"": true}}
	c.loadText()
	for range 3 {
		c.joinHost()
	}
	quiet := time.Duration(0)
	for step := range steps {
		c.step()
		if step%25 == 24 {
			quiet = max(quiet, c.settle(step))
		}
	}
	t.Logf("the longest time until all hosts agreed: %v", quiet.Round(time.Millisecond))
}

func (c *chaos) step() {
	h := c.anyHost()
	switch n := c.random.IntN(25); {
	case n < 2 || h == nil:
		c.joinHost()
	case n < 3:
		c.removeHost(h)
	case n < 6:
		c.loadText()
	case n < 12:
		c.changePods(h)
	case n < 15:
		h.client.away(c.random.IntN(2) == 0)
	case n < 18:
		c.restart(h)
	case n < 19:
		h.stolen()
	case n < 20:
		c.model.Restart()
	case n < 21:
		if s, err := c.model.Read(c.t.Context(), cluster.Watched, 0); err == nil {
			c.model.Compact(s.Revision)
		}
	case n < 22:
		c.backUp()
	case n < 23:
		c.restore()
	case n < 24 && c.random.IntN(2) == 0: // it takes a second
		c.trial(h)
	default:
		c.model.Partition(true)
		time.Sleep(time.Duration(c.random.IntN(20)) * time.Millisecond)
		c.model.Partition(false)
	}
}

func (c *chaos) anyHost() *chaosHost {
	names := slices.Sorted(maps.Keys(c.hosts))
	if len(names) == 0 {
		return nil
	}
	return c.hosts[names[c.random.IntN(len(names))]]
}

func (c *chaos) joinHost() {
	name := fmt.Sprint("h", c.random.IntN(6))
	if c.hosts[name] != nil {
		return
	}
	c.serials[name]++
	serial := c.serials[name]
	all, err := cluster.ClaimRanges(c.t.Context(), c.model, []cluster.Pool{c.pool}, name,
		func(r []netip.Prefix) (store.Txn, error) {
			n := c.node(name, serial, r[0].String())
			n.Serial[2] = name[1]
			if err := n.Sign(c.ca); err != nil {
				return store.Txn{}, err
			}
			return store.Txn{Put: []store.Entry{c.entry(cluster.NodeTree+name, n)}}, nil
		})
	if err != nil {
		c.t.Fatal(err)
	}
	r := all[0]
	h := &chaosHost{name: name, dir: c.t.(*testing.T).TempDir(), serial: serial,
		parts: newParts(), ranges: r}
	c.hosts[name] = h
	c.begin(h)
}

func (c *chaos) begin(h *chaosHost) {
	h.running = c.startWith(h.name, h.dir, cluster.Serial{h.serial, 1, h.name[1]}, h.parts, false)
}

// restart ends a host as a crash does, and starts it with what was written.
func (c *chaos) restart(h *chaosHost) {
	dir := c.t.(*testing.T).TempDir()
	h.Service.writing.Lock() // the files are those of one moment
	err := os.CopyFS(dir, os.DirFS(h.dir))
	h.Service.writing.Unlock()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	h.stop()
	h.dir = dir
	away := h.client.isAway() != nil
	c.begin(h)
	h.client.away(away)
}

// removeHost removes a host as weir-store does.
func (c *chaos) removeHost(h *chaosHost) {
	h.stop()
	delete(c.hosts, h.name)
	s, err := c.model.Read(c.t.Context(), cluster.Root, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	var ranges store.Snapshot
	t := store.Txn{}
	for _, e := range s.Entries {
		switch {
		case strings.HasPrefix(e.Key, cluster.RangeTree):
			ranges.Entries = append(ranges.Entries, e)
		case e.Key == cluster.NodeTree+h.name, e.Key == cluster.EndpointKey+h.name,
			strings.HasPrefix(e.Key, cluster.PodsTree+h.name+"/"),
			e.Key == cluster.ReportTree+h.name:
			t.Delete = append(t.Delete, e.Key)
		}
	}
	release, err := cluster.ReleaseRanges(ranges, h.name)
	if err != nil {
		c.t.Fatal(err)
	}
	mark := &cluster.Removed{}
	for i := range h.serial {
		mark.Serials = append(mark.Serials, cluster.Serial{i + 1, 1, h.name[1]})
	}
	t.Put = append(release.Put, c.entry(cluster.RemovedTree+"node/"+h.name, mark))
	c.commit(t)
}

func (c *chaos) loadText() { c.loadFor(0) }

// trial loads a version on trial, perhaps restarts a host meanwhile, and confirms or reverts it, at
// any time before and after the hosts have gone back by themselves.
func (c *chaos) trial(h *chaosHost) {
	c.loadFor(time.Second) // the shortest
	time.Sleep(time.Duration(c.random.IntN(700)) * time.Millisecond)
	if c.random.IntN(3) == 0 {
		c.restart(h)
	}
	time.Sleep(time.Duration(c.random.IntN(700)) * time.Millisecond)
	if c.random.IntN(2) == 0 {
		c.confirm()
		return
	}
	c.head = c.head.Trial.Revert
	c.put(cluster.HeadKey, &c.head)
}

func (c *chaos) loadFor(try time.Duration) {
	text := fmt.Sprintf("add %d allow tcp from any to any %d\n", 1+c.random.IntN(1000),
		1+c.random.IntN(1000))
	set, err := rule.ParseFile("all", text, new(rule.Names))
	if err != nil {
		c.t.Fatal(err)
	}
	c.texts[textOf(set)] = true
	c.load(text, try)
}

func (c *chaos) changePods(h *chaosHost) {
	var pods []cluster.Pod
	a := h.ranges.Addr().As4()
	for i := range 40 {
		if c.random.IntN(2) == 0 {
			a[3] = byte(i + 1)
			pods = append(pods, pod(fmt.Sprint("p", i), netip.AddrFrom4(a).String()))
		}
	}
	h.SetPods(pods)
}

// stolen writes with the host's rights what the others must not believe.
func (h *chaosHost) stolen() {
	a := h.ranges.Addr().As4()
	a[2]++ // of another host, or of no one
	a[3] = 200
	foreign := &cluster.Pods{Pods: []cluster.Pod{pod("foreign", netip.AddrFrom4(a).String())}}
	_, _ = h.client.Commit(h.lab.t.Context(), store.Txn{Put: []store.Entry{
		h.lab.entry(cluster.PodsTree+h.name+"/0099", foreign)}}) // it may be away
}

func (c *chaos) backUp() {
	s, err := c.model.Read(c.t.Context(), cluster.Watched, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	c.backup, c.saved = s.Revision, c.head
}

// restore puts the store back to a backup, as weir-store does: a new epoch, and hosts that joined
// since join again.
func (c *chaos) restore() {
	if c.backup == 0 {
		return
	}
	// No one sees the store between the two steps: the revision alone does not tell a host that it
	// was put back.
	for _, h := range c.hosts {
		if h.client.isAway() == nil {
			h.client.away(true)
			defer h.client.away(false)
		}
	}
	c.model.Rewind(c.backup)
	c.epoch++
	c.head = c.saved
	c.head.Number = cluster.Number{Epoch: c.epoch, Count: 1}
	c.backup = 0
	c.commit(store.Txn{Put: []store.Entry{c.entry(cluster.HeadKey, &c.head), c.entry(
		cluster.IdentityKey, &cluster.Identity{ID: cluster.Serial{1}, Epoch: c.epoch})}})
	s, err := c.model.Read(c.t.Context(), cluster.NodeTree, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	have := map[string]byte{}
	for _, e := range s.Entries {
		n, err := cluster.Decode[cluster.Node](e.Value)
		if err != nil {
			c.t.Fatal(err)
		}
		have[n.Name] = n.Serial[0]
	}
	for name, h := range c.hosts {
		if have[name] != h.serial { // it is not in the backup, or as it was before it left
			h.stop()
			delete(c.hosts, name)
			continue
		}
		delete(have, name)
	}
	for name := range have { // a host of the backup that left since: it is removed again
		c.removeHost(&chaosHost{name: name, serial: have[name],
			running: &running{stop: func() {}}})
	}
}

// settle has everything reachable, waits until the hosts agree, and checks what they enforce.
func (c *chaos) settle(step int) time.Duration {
	began := time.Now()
	for _, h := range c.hosts {
		h.client.away(false)
	}
	last, patience := "", time.Now().Add(5*time.Minute)
	for {
		if c.accept() {
			began = time.Now()
		}
		wrong := c.wrong()
		if wrong == "" {
			break
		}
		if last = wrong; time.Now().After(patience) {
			for name, h := range c.hosts {
				h.Service.mu.Lock()
				c.t.Logf("%s: revision %d, epoch %d, kept %v, held %v, waiting %v, revoked %v",
					name,
					h.guarded.Stored().Revision, h.desired.Trust().Epoch, keysOf(h.desired.Kept()),
					h.guarded.Held(), h.problems(), h.desired.Revoked())
				s, _ := c.model.Read(c.t.Context(), cluster.Watched, 0)
				c.t.Logf("differs from the store: %v", h.guarded.Stored().Diff(store.NewCopy(s)))
				h.Service.mu.Unlock()
				h.parts.mu.Lock()
				c.t.Logf("refused: %v", h.parts.refusals[max(0, len(h.parts.refusals)-6):])
				h.parts.mu.Unlock()
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
