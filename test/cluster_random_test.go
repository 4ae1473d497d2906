package test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/agent"
	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/testrand"
)

// disturbed is a cluster of real hosts to which everything happens.
type disturbed struct {
	*cluster
	random  *rand.Rand
	program string
	pods    map[string]string // attached: the address by name
	at      map[string]*podHost
	named   int
	cut     map[*podHost]bool

	mu     sync.Mutex
	loaded int      // guarded by mu; versions so far, also those of which no one knows
	base   []string // guarded by mu; what all versions have in common
}

// TestLongClusterRandom: real hosts, of which one has the real store. Versions are loaded, the
// store and agents are killed, hosts are cut off, containers come and go. Nothing is in force
// meanwhile that was not loaded, whole. When all are connected again, all hosts come to enforce one
// version, and to have the same containers in their tables. TestRandom of agent/cluster tests how
// soon.
func TestLongClusterRandom(t *testing.T) {
	t.Parallel()
	const rounds = 10
	seed := testrand.Seed(t)
	program, err := storeProgram()
	if err != nil {
		t.Fatal(err)
	}
	d := &disturbed{cluster: newCluster(t), random: rand.New(rand.NewPCG(seed, 1)),
		program: program, pods: map[string]string{}, at: map[string]*podHost{},
		cut: map[*podHost]bool{}}
	d.join("a", d.a)
	d.join("b", d.b)
	d.join("c", d.c)
	d.loadOne()
	d.settle()
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- d.watch(stop) }()
	longest := time.Duration(0)
	for range rounds {
		for range 4 {
			d.disturb()
		}
		longest = max(longest, d.settle())
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Logf("%d versions, the longest time until all agreed: %v", d.loaded,
		longest.Round(time.Millisecond))
}

func (d *disturbed) disturb() {
	h := []*podHost{d.b, d.c}[d.random.IntN(2)]
	switch d.random.IntN(6) {
	case 0, 1:
		d.loadNext()
	case 2:
		d.stopStore()
		time.Sleep(time.Duration(d.random.IntN(1500)) * time.Millisecond)
		d.startStore(d.program)
	case 3:
		h.kill()
		h.start()
	case 4:
		d.cutOff(h, !d.cut[h])
	default:
		d.changePods(h)
	}
}

// next returns the number and the text of the next version.
func (d *disturbed) next() (n int, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loaded++
	return d.loaded, fmt.Sprintf("%sadd %d allow tcp from any to any %d\n", clusterRules,
		1000+d.loaded, 2000+d.loaded)
}

// loadOne loads the next version, however long that takes.
func (d *disturbed) loadOne() {
	d.t.Helper()
	_, text := d.next()
	if out, err := d.load(text); err != nil {
		d.t.Fatalf("%s, %v", out, err)
	}
}

// loadNext loads the next version. The command is killed if it still waits for hosts after a while:
// then the version may be there or not.
func (d *disturbed) loadNext() {
	n, text := d.next()
	file := d.a.file("cluster.rules", text)
	out, err := d.a.host.Command("timeout", "-s", "KILL", "2", weir, "--root", d.a.root, "fw",
		"load", file).CombinedOutput()
	d.t.Logf("load %d: %v %s", n, err, strings.TrimSpace(string(out)))
}

// cutOff takes the link of a host to the store away, or puts it back.
func (d *disturbed) cutOff(h *podHost, cut bool) {
	d.t.Helper()
	link := h.host.Link("eth0")
	change := h.host.Netlink().SetLinkUp
	if cut {
		change = h.host.Netlink().SetLinkDown
	}
	if err := change(link.Index); err != nil {
		d.t.Fatal(err)
	}
	if d.cut[h] = cut; cut {
		return
	}
	route := map[*podHost][2]string{d.b: {"10.66.2.0/24", "10.66.1.1"},
		d.c: {"10.66.1.0/24", "10.66.2.1"}}[h] // it went with the link
	if err := h.host.AddRoute(netip.MustParsePrefix(route[0]),
		netip.MustParseAddr(route[1])); err != nil {
		d.t.Fatal(err)
	}
}

func (d *disturbed) changePods(h *podHost) {
	d.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(d.pods)) {
		if d.random.IntN(2) == 0 {
			d.at[name].weir("pod", "detach", name)
			delete(d.pods, name)
			delete(d.at, name)
		}
	}
	d.named++
	name := fmt.Sprint("p", d.named)
	_, pod := h.attach(name, "--label", "app=web")
	d.pods[name], d.at[name] = pod.Addrs[0].String()+"/32", h
}

// rulesOf returns the rules that a host enforces, as text.
func (d *disturbed) rulesOf(h *podHost) ([]string, error) {
	var all api.Rules
	err := api.NewClient(agent.Paths{Root: h.root}.Socket()).Get(d.t.Context(), "/v1/rules", &all)
	var texts []string
	for _, r := range all.Rules {
		texts = append(texts, fmt.Sprint(r.Number, " ", r.Text))
	}
	return texts, err
}

// known returns which version rules are, or why they are none.
func (d *disturbed) known(texts []string) (version int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(texts), func(s string) bool {
		var number, port int
		n, _ := fmt.Sscanf(s, "%d allow tcp from any to any %d", &number, &port)
		if n < 2 || number <= 1000 || number > 1000+d.loaded || port != number+1000 ||
			version != 0 {
			return false
		}
		version = number - 1000
		return true
	})
	if d.base == nil && version != 0 {
		d.base = rest
	}
	if version == 0 || !slices.Equal(rest, d.base) {
		return 0, fmt.Errorf("rules that were not loaded: %q", texts)
	}
	return version, nil
}

// watch looks at what the hosts enforce, all the time.
func (d *disturbed) watch(stop chan struct{}) error {
	for {
		for _, h := range []*podHost{d.a, d.b, d.c} {
			texts, err := d.rulesOf(h)
			if err != nil {
				continue // it is being killed or begins
			}
			if _, err := d.known(texts); err != nil {
				return err
			}
		}
		select {
		case <-stop:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// settle has all hosts reachable, waits until they are connected, and returns how long they then
// take to agree.
func (d *disturbed) settle() time.Duration {
	d.t.Helper()
	for _, h := range slices.Collect(maps.Keys(d.cut)) {
		if d.cut[h] {
			d.cutOff(h, false)
		}
	}
	d.eventually("all are connected", func() error {
		for _, h := range []*podHost{d.a, d.b, d.c} {
			var s api.Status
			err := api.NewClient(agent.Paths{Root: h.root}.Socket()).Get(d.t.Context(),
				"/v1/status", &s)
			if err != nil || s.Cluster == nil || !s.Cluster.Connected {
				return fmt.Errorf("%v %+v", err, s.Cluster)
			}
		}
		return nil
	})
	began := time.Now()
	var took time.Duration
	var last error
	d.eventually("all agree", func() error {
		took = time.Since(began)
		err := d.agree()
		if err != nil {
			last = err
		}
		return err
	})
	if took > time.Second { // usually it is less: see what was late
		d.t.Logf("until %v: %v", took, last)
	}
	return took
}

// agree returns how the hosts differ.
func (d *disturbed) agree() error {
	version := 0
	for _, h := range []*podHost{d.a, d.b, d.c} {
		texts, err := d.rulesOf(h)
		if err != nil {
			return err
		}
		n, err := d.known(texts)
		if err != nil {
			return err
		}
		if version != 0 && n != version {
			return fmt.Errorf("versions %d and %d are in force", version, n)
		}
		version = n
		var tables api.Tables
		if err := api.NewClient(agent.Paths{Root: h.root}.Socket()).Get(d.t.Context(),
			"/v1/tables", &tables); err != nil {
			return err
		}
		var have []string
		for _, table := range tables.Tables {
			if table.Name == "app=web" {
				for _, e := range table.Entries {
					have = append(have, e.Prefix)
				}
			}
		}
		slices.Sort(have)
		if want := slices.Sorted(maps.Values(d.pods)); !slices.Equal(have, want) {
			return fmt.Errorf("app=web has %q, not %q", have, want)
		}
	}
	return nil
}

// TestLongStoreEndsDuringACut: a host that was cut off while its weir-store ended, so that it could
// not hear of that, hears of the next one after its return.
func TestLongStoreEndsDuringACut(t *testing.T) {
	t.Parallel()
	program, err := storeProgram()
	if err != nil {
		t.Fatal(err)
	}
	d := &disturbed{cluster: newCluster(t), cut: map[*podHost]bool{}}
	d.join("a", d.a)
	d.join("c", d.c)
	d.cutOff(d.c, true)
	d.stopStore()
	d.startStore(program)
	d.cutOff(d.c, false)
	began := time.Now()
	d.loadOne()
	d.eventually("c has the version", func() error {
		if s := d.c.status(); s.Cluster == nil || s.Cluster.Version != "1.1" {
			return fmt.Errorf("%+v", s.Cluster)
		}
		return nil
	})
	t.Logf("c heard of it after %v", time.Since(began))
}
