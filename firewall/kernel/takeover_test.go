package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/rule"
)

// namesRules ask about an interface by a glob, and about tables: of the owner, and of a label.
const namesRules = `add 1 check-state
add 10 deny tcp from any to me 81 recv eth*
add 20 allow tcp from table(clients) to me setup keep-state
add 30 allow tcp from table(app=web) to me 81 setup keep-state
`

func entries(prefixes ...string) (all []rule.TableEntry) {
	for _, p := range prefixes {
		all = append(all, rule.TableEntry{Prefix: netip.MustParsePrefix(p)})
	}
	return all
}

// answers makes sure that these of the ports 80 and 81 answer, and no other.
func (g *pairLab) answers(t *testing.T, when string, ports ...string) {
	t.Helper()
	for _, port := range []string{"80", "81"} {
		dial := g.connect
		if slices.Contains(ports, port) {
			dial = g.dial
		}
		c, err := dial("10.0.0.1:" + port)
		if err == nil {
			c.Close()
		}
		if answers := err == nil; answers != slices.Contains(ports, port) {
			t.Errorf("%s: port %s answers: %v", when, port, answers)
		}
	}
}

// reopen is an agent that dies, and the next one up to its first Load.
func (g *pairLab) reopen(t *testing.T) {
	t.Helper()
	if err := g.engine.Close(); err != nil {
		t.Fatal(err)
	}
	g.open(t)
	if !g.engine.TakenOver() {
		t.Fatal("nothing was taken over")
	}
	g.interfaces(t)
}

// TestStartChangesNothingBeforeItsRules: from the end of an engine to the first Load of the next,
// whatever that is given, packets are evaluated by the old rules with all that they name. A Load
// that fails half-way changes nothing either.
func TestStartChangesNothingBeforeItsRules(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, "add 1 check-state\n")
	program := compile(t, namesRules)
	for _, f := range []func() error{
		func() error { return g.engine.SetTable("clients", entries("10.0.0.0/24")) },
		func() error { return g.engine.Load(program) },
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when, ports string) {
		t.Helper()
		g.answers(t, when, ports)
	}
	want("before", "80")
	g.reopen(t)
	want("with interfaces set", "80")
	for _, f := range []func() error{
		func() error { return g.engine.SetTable("clients", nil) },
		func() error { return g.engine.SetTable("app=web", entries("10.0.0.2/32")) },
		func() error { return g.engine.AddTable("app=web", entries("10.0.0.3/32")[0]) },
		func() error {
			return g.engine.DeleteTable("app=web",
				netip.MustParsePrefix("10.0.0.3/32"))
		},
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	want("with tables set", "80")
	if err := g.engine.DeleteTable("app=web", netip.MustParsePrefix("10.0.0.3/32")); err == nil {
		t.Error("deleted twice")
	}
	next := compile(t,
		"add 1 check-state\nadd 20 allow tcp from table(clients) to me 80 setup keep-state\n"+
			"add 30 allow tcp from table(app=web) to me 81 recv eth0 setup keep-state\n")
	broken := *next
	broken.Tables = make([]string, 300)
	if err := g.engine.Load(&broken); err == nil {
		t.Error("a program with 300 tables is taken")
	}
	want("after a program that is refused", "80")
	networks := g.engine.objects.Networks
	closed, err := networks.Clone()
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	g.engine.objects.Networks = closed
	if err := g.engine.Load(next); err == nil {
		t.Fatal("a load that cannot write passes without an error")
	}
	g.engine.objects.Networks = networks
	want("after a load that failed half-way", "80")
	if err := g.engine.Load(next); err != nil {
		t.Fatal(err)
	}
	want("with the next rules", "81")
}

// TestTablesEndWithTheirOwner: what a table held that neither the rules nor a pod of the next
// engine list is gone with the first Load.
func TestTablesEndWithTheirOwner(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, namesRules)
	for _, table := range []string{"clients", "app=web", "unnamed"} {
		if err := g.engine.SetTable(table, entries("10.0.0.2/32")); err != nil {
			t.Fatal(err)
		}
	}
	g.answers(t, "before", "80")
	g.reopen(t)
	if err := g.engine.Load(compile(t, namesRules)); err != nil {
		t.Fatal(err)
	}
	g.answers(t, "to those who were in a table of an engine that is gone")
	if n := len(g.engine.nameIDs.used[nameTable]); n != 2 ||
		g.engine.nameIDs.ids[nameTable]["unnamed"] != 0 && n > 2 {
		t.Errorf("%d tables have ids: %v", n, g.engine.nameIDs.used[nameTable])
	}
	left, err := readAll[weirNameIdKey, weirNameId](g.engine.objects.NameIds)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 3 { // two tables and the flow
		t.Errorf("names in the kernel: %d", len(left))
	}
}

// TestLabelsLeft: until the first Load the labels of an address are known as they were.
func TestLabelsLeft(t *testing.T) {
	g := newPairLab(t, namesRules)
	for table, members := range map[string][]rule.TableEntry{
		"clients": entries("10.0.0.2/32"), "app=web": entries("10.0.0.2/32", "fd00::2/128"),
		"tier=front": entries("10.0.0.2/32"), "app=db": entries("10.0.0.3/32"),
	} {
		if err := g.engine.SetTable(table, members); err != nil {
			t.Fatal(err)
		}
	}
	g.reopen(t)
	look := func(when string, want map[string][]string) {
		t.Helper()
		for a, want := range want {
			if got, err := g.engine.LabelsLeft(netip.MustParseAddr(a)); err != nil ||
				!slices.Equal(got, want) {
				t.Errorf("%s: %s was in %v, %v, want %v", when, a, got, err, want)
			}
		}
	}
	look("taken over", map[string][]string{"10.0.0.2": {"app=web", "tier=front"},
		"fd00::2": {"app=web"}, "10.0.0.3": {"app=db"}, "10.0.0.4": nil})
	if err := g.engine.Load(compile(t, namesRules)); err != nil {
		t.Fatal(err)
	}
	look("loaded", map[string][]string{"10.0.0.2": nil, "fd00::2": nil})
}

// TestTableNamesAreReleased makes more tables than there can be, one after the other, and then as
// many labels as there can be at once. Rules and their tables are not touched by that.
func TestTableNamesAreReleased(t *testing.T) {
	nstest.RequireRoot(t)
	shortenTimers(t)
	e := newEngine(t)
	if err := e.Load(compile(t, "add allow ip from table(kept) to any\n")); err != nil {
		t.Fatal(err)
	}
	member := entries("10.0.0.1/32")[0]
	for i := range maxTables + 200 {
		name := fmt.Sprintf("build=%d", i)
		if err := errors.Join(e.AddTable(name, member),
			e.DeleteTable(name, member.Prefix)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(e.tables); n > maxIdle+1 {
		t.Errorf("%d tables are left", n)
	}
	// Their ids, too: here, and where the next engine reads them.
	next, err := readNameIDs(e.objects.NameIds)
	if err != nil {
		t.Fatal(err)
	}
	for what, ids := range map[string]*nameIDs{"this engine": e.nameIDs, "the next one": next} {
		if n := len(ids.used[nameTable]); n > maxIdle+1 {
			t.Errorf("for %s %d names of tables are left", what, n)
		}
	}
	const reserve = 100
	for i := range maxTables {
		name := fmt.Sprintf("id=%d", i)
		none, err := e.LabelsWithoutPlace([]string{name, "kept"}, reserve)
		if err != nil || (len(none) == 1) != (i >= maxTables-reserve) {
			t.Fatalf("table %d with %d to be left: %q, %v", i, reserve, none, err)
		}
		if err := e.AddTable(name, member); err != nil {
			t.Fatal(err)
		}
	}
	if none, err := e.LabelsWithoutPlace([]string{"id=0", "id=7"}, 0); err != nil || none != nil {
		t.Errorf("labels that are there: %q, %v", none, err)
	}
	err = e.AddTable("one=more", member)
	var hint interface{ Hint() string }
	if err == nil || !strings.Contains(err.Error(), "label one=more") || !errors.As(err, &hint) {
		t.Errorf("one label too many: %v", err)
	}
	if err := e.AddTable("id=0", entries("10.0.0.2/32")[0]); err != nil {
		t.Errorf("a label that is there: %v", err)
	}
	if err := e.AddTable("guests", member); err != nil {
		t.Errorf("a table beside as many labels as there can be: %v", err)
	}
	if err := e.Load(compile(t,
		"add allow ip from table(kept) to table(new=label)\n"+
			"add allow ip from any to table(other)\n")); err != nil {
		t.Errorf("rules beside as many labels as there can be: %v", err)
	}
	if e.tables["kept"] == nil {
		t.Error("a table of the rules is gone")
	}
}

// TestManyLabelsAtAStart: pods may have more labels than there can be that no rule names, because
// rules named some when they came. The next agent begins with all of them.
func TestManyLabelsAtAStart(t *testing.T) {
	nstest.RequireRoot(t)
	shortenTimers(t)
	e := newEngine(t)
	member := entries("10.0.0.1/32")
	for i := range maxTables + 50 {
		if err := e.SetTable(fmt.Sprintf("id=%d", i), member); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Load(compile(t, "add deny ip from table(id=7) to any\n")); err != nil {
		t.Fatal(err)
	}
	for i := range maxTables + 50 {
		if err := e.SetTable(fmt.Sprintf("id=%d", i), member); err != nil {
			t.Fatalf("a label that is there: %v", err)
		}
	}
	if err := e.SetTable("one=more", member); err == nil {
		t.Error("one label more is not refused")
	}
}

// TestFewDescriptors starts engines with too few descriptors: such a start is refused and all
// interfaces stay guarded.
func TestFewDescriptors(t *testing.T) { startWithFew(t, 30) }

// TestLongFewDescriptors does so with more numbers of them.
func TestLongFewDescriptors(t *testing.T) { startWithFew(t, 7) }

// startWithFew starts engines with numbers of descriptors that are so far apart.
func startWithFew(t *testing.T, step int) {
	t.Helper()
	g := newPairLab(t, webRules)
	for i := range 20 {
		name := fmt.Sprintf("more%d", i)
		g.server.IP("link add " + name + " type veth")
		if err := g.server.Do(func() error {
			at, err := net.InterfaceByName(name)
			if err == nil {
				_, err = g.engine.Attach(uint32(at.Index))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	count := func() int {
		pins, _ := filepath.Glob(filepath.Join(layoutDir(g.dir), "link-*"))
		return len(pins)
	}
	all := count()
	if err := g.engine.Close(); err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	restore := func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &before) }
	defer restore()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for more := 0; more < 200; more += step {
		var e *Engine
		err := g.server.Do(func() (err error) {
			few := before
			few.Cur = uint64(len(open) + more)
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
				return err
			}
			e, err = openShared(t, Config{Dir: g.dir, Options: g.options})
			if err == nil {
				err = e.Load(compile(t, webRules))
			}
			restore()
			return err
		})
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), "too many open files") {
				t.Errorf("with %d descriptors more: %v", more, err)
			}
		}
		if e != nil {
			e.Close()
		}
		if n := count(); n != all {
			t.Fatalf("with %d descriptors more: %d links of %d are left: %v", more, n, all, err)
		}
	}
	if refused == 0 {
		t.Error("no start was refused: nothing was tested")
	}
	g.open(t)
	g.interfaces(t)
	if err := g.engine.Load(compile(t, webRules)); err != nil {
		t.Fatal(err)
	}
	if n := len(g.engine.Attached()); n != all/2 {
		t.Errorf("%d interfaces are guarded, there are %d", n, all/2)
	}
}

// TestReusedInterfaceIndex: an interface that goes and comes again with the same index,
// unnoticed, is guarded when it is attached again.
func TestReusedInterfaceIndex(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	g.server.IP("link del eth0")
	g.server.IP(fmt.Sprintf("link add eth0 index %d type veth peer name eth9", g.index))
	g.server.IP("link set eth9 netns " + g.client.Path())
	for _, n := range []*nstest.Node{g.server, g.client} {
		name, addr := "eth0", "10.0.0.1/24"
		if n == g.client {
			name, addr = "eth9", "10.0.0.2/24"
		}
		n.IP("addr add " + addr + " dev " + name)
		n.IP("link set " + name + " up")
	}
	g.answers(t, "without the engine, or this test could not fail", "80", "81")
	g.attach(t)
	g.answers(t, "attached again", "80")
}

// TestInterfacesComeWithTheFirstRules: what rules and the fast path know of the host, its addresses
// and the settings of its interfaces, is there with the first Load. This holds for a new engine and
// for one that takes over, as it does after later news.
func TestInterfacesComeWithTheFirstRules(t *testing.T) {
	g := newPairLab(t, webRules)
	addresses, err := nstest.Prefixes("10.0.0.1/24 fd00::1/64")
	if err != nil {
		t.Fatal(err)
	}
	host := []firewall.Interface{{Index: g.index, Name: "eth0", Addrs: addresses,
		ReversePath: firewall.ReverseStrict}}
	check := func(when string, flags uint32) {
		t.Helper()
		var config weirConfig
		if err := g.engine.objects.Config.Lookup(uint32(0), &config); err != nil {
			t.Fatal(err)
		}
		if own, _ := ownBits(host); config.Own != own {
			t.Errorf("%s: own addresses %x, want %x", when, config.Own, own)
		}
		var origin uint32
		if err := g.engine.objects.IfaceSysctls.Lookup(g.index, &origin); err != nil &&
			!errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Fatal(err)
		}
		if origin != flags {
			t.Errorf("%s: settings %d of the interface, want %d", when, origin, flags)
		}
	}
	check("a new engine", 0)
	g.reopen(t)
	if err := g.engine.SetInterfaces(host); err != nil {
		t.Fatal(err)
	}
	check("taken over, before the first rules", 0)
	if err := g.engine.Load(compile(t, webRules)); err != nil {
		t.Fatal(err)
	}
	check("taken over", sysctlRPStrict)
}

// TestRoutesComeWithTheFirstRules: routes that an engine gets before its first Load do not change
// those that the rules in force ask about. A Load that fails after it has written them leaves no
// verdict cached.
func TestRoutesComeWithTheFirstRules(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	lan := firewall.Route{Dst: netip.MustParsePrefix("10.0.0.0/24"), Interface: g.index}
	all := firewall.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Interface: g.index}
	set := func(routes ...firewall.Route) {
		t.Helper()
		if err := g.engine.SetRoutes(routes); err != nil {
			t.Fatal(err)
		}
	}
	has := func(when string, want int) {
		t.Helper()
		now, err := readAll[weirTableKey, weirRoute](g.engine.objects.Routes)
		if err != nil || len(now) != want {
			t.Errorf("%s: %d routes, want %d; %v", when, len(now), want, err)
		}
	}
	epoch := func() uint64 {
		t.Helper()
		var c weirConfig
		if err := g.engine.objects.Config.Lookup(uint32(0), &c); err != nil {
			t.Fatal(err)
		}
		return c.Epoch
	}
	set(lan)
	has("after a Load", 1)
	g.reopen(t)
	set(lan, all)
	has("before the first Load of the next engine", 1)
	images, before := g.engine.objects.Images, epoch()
	closed, err := images.Clone()
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	g.engine.objects.Images = closed
	if err := g.engine.Load(compile(t, webRules)); err == nil {
		t.Fatal("a load that cannot write passes without an error")
	}
	g.engine.objects.Images = images
	if epoch() == before {
		t.Error("verdicts from before a load that failed still count")
	}
	if err := g.engine.Load(compile(t, webRules)); err != nil {
		t.Fatal(err)
	}
	has("with the first Load", 2)
	set()
	has("after it", 0)
}
