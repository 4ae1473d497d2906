package cluster

import (
	"context"
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
	lost    map[string]byte // serial numbers of hosts that a restore has lost: they join again
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
		lost: map[string]byte{}, texts: map[string]bool{"": true}}
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
	owners := func(ctx context.Context) ([]cluster.Owner, error) {
		return cluster.ReadOwners(ctx, c.model)
	}
	all, err := cluster.ClaimRanges(c.t.Context(), c.model, owners, []cluster.Pool{c.pool}, name,
		func(r []netip.Prefix) (store.Txn, error) {
			n := c.node(name, serial, r[0].String())
			n.Serial[2] = name[1]
			for i := range c.lost[name] {
				n.Replaces = append(n.Replaces, cluster.Serial{i + 1, 1, name[1]})
			}
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
	delete(c.lost, name)
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
	record := &cluster.RemovalRecord{}
	for i := range h.serial {
		record.Serials = append(record.Serials, cluster.Serial{i + 1, 1, h.name[1]})
	}
	t.Put = append(release.Put, c.entry(cluster.RemovedTree+"node/"+h.name, record))
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
			c.lost[name] = h.serial
			continue
		}
		delete(have, name)
	}
	for name := range have { // a host of the backup that left since: it is removed again
		c.removeHost(&chaosHost{name: name, serial: have[name],
			running: &running{stop: func() {}}})
	}
}
