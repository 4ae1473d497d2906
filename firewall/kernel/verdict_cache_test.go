package kernel

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule"
)

// cachedVerdicts counts the valid entries of the verdict caches of all CPUs.
func (e *Engine) cachedVerdicts(t *testing.T) (n int) {
	t.Helper()
	for i := range e.objects.VerdictCache.MaxEntries() {
		var each []weirCachedVerdict
		if err := e.objects.VerdictCache.Lookup(i, &each); err != nil {
			t.Fatal(err)
		}
		for _, m := range each {
			if m.Traits.Generation == e.config.Epoch<<8|uint64(e.slot()) {
				n++
			}
		}
	}
	return n
}

// asker evaluates UDP packets from 10.0.0.2 to port 9 of 10.0.0.1, unless changed.
type asker struct {
	t *testing.T
	e *Engine
	firewall.Input
	ip  build.IPv4
	udp build.UDP
}

// newEngine opens an engine with small tables, whose clock stands still.
func newEngine(t *testing.T) *Engine {
	t.Helper()
	o := firewall.DefaultOptions()
	o.MaxStates = 1000
	e := newPartEngine(t, o)
	e.clock = func() int64 { return int64(time.Second) }
	return e
}

// newEngineWith opens an engine without pins until the test ends.
func newEngineWith(t *testing.T, o firewall.Options) *Engine {
	t.Helper()
	nstest.RequireRoot(t)
	e, err := openShared(t, Config{Options: o})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func newAsker(t *testing.T, e *Engine, rules string) *asker {
	t.Helper()
	a := &asker{t: t, e: e, Input: firewall.Input{Now: time.Second, Hook: firewall.Hook{Recv: 7}}}
	a.ip = build.IPv4{Src: netip.MustParseAddr("10.0.0.2"), Dst: netip.MustParseAddr("10.0.0.1"),
		TTL: 64}
	a.udp = build.UDP{SrcPort: 5000, DstPort: 9}
	a.must(e.Load(compile(t, rules)))
	return a
}

func (a *asker) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// is makes sure that three packets in a row are decided by the rule with a number: the first may
// walk the rules, the others may hit the cache.
func (a *asker) is(number uint16) {
	a.t.Helper()
	for n := range 3 {
		b := enginetest.Packet(a.t, a.ip, a.udp, build.Data("hello"))
		v, err := a.e.Evaluate(&a.Input, b)
		a.must(err)
		if v.Rule != number {
			a.t.Fatalf("packet %d was decided by rule %d, not %d: %+v", n, v.Rule, number, v)
		}
	}
}

// TestVerdictCacheFollowsChanges changes each thing that rules ask about, after a verdict on it was
// cached.
func TestVerdictCacheFollowsChanges(t *testing.T) {
	lan := firewall.Interface{Index: 7, Name: "lan0",
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")}}
	two, one := netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("10.0.0.1/32")
	entry := rule.TableEntry{Prefix: two}
	e := newEngine(t)
	for name, c := range map[string]struct {
		rule          string
		change, again func(e *Engine) error // rule 100 holds after change and not after again
	}{
		"a member of a table": {"from table(bad) to any",
			func(e *Engine) error { return e.AddTable("bad", entry) }, func(e *Engine) error {
				return e.DeleteTable("bad", two)
			}},
		"a whole table": {"from any to table(bad)",
			func(e *Engine) error {
				return e.SetTable("bad",
					[]rule.TableEntry{{Prefix: one}})
			}, func(e *Engine) error { return e.SetTable("bad", nil) }},
		"an address": {"from any to me",
			func(e *Engine) error {
				i := lan
				i.Addrs = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}
				return e.SetInterfaces([]firewall.Interface{i})
			}, func(e *Engine) error { return e.SetInterfaces([]firewall.Interface{lan}) }},
		"the sender's address": {"from me to any",
			func(e *Engine) error {
				i := lan
				i.Addrs = []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}
				return e.SetInterfaces([]firewall.Interface{i})
			}, func(e *Engine) error { return e.SetInterfaces([]firewall.Interface{lan}) }},
		"a name": {"from any to any recv wan0",
			func(e *Engine) error {
				i := lan
				i.Name = "wan0"
				return e.SetInterfaces([]firewall.Interface{i})
			}, func(e *Engine) error { return e.SetInterfaces([]firewall.Interface{lan}) }},
		"an interface that is gone": {"from any to any not recv lan*",
			func(e *Engine) error { return e.SetInterfaces(nil) }, func(e *Engine) error {
				return e.SetInterfaces([]firewall.Interface{lan})
			}},
		"a route": {"from any to any verrevpath",
			func(e *Engine) error {
				return e.SetRoutes([]firewall.Route{{Dst: netip.MustParsePrefix("10.0.0.0/24"),
					Interface: 7}})
			}, func(e *Engine) error { return e.SetRoutes(nil) }},
	} {
		for kind, rest := range map[string]string{
			"by rules":  "add 200 allow udp from any to any\n",
			"by states": "add 50 check-state\nadd 200 allow udp from any to any keep-state\n",
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				a := newAsker(t, e, "add 100 deny udp "+c.rule+"\n"+rest)
				a.must(a.e.SetInterfaces([]firewall.Interface{lan}))
				next := func() { // another flow, which looks the same to the rules
					a.udp.SrcPort++
				}
				a.is(200)
				if n := a.e.cachedVerdicts(t); n == 0 {
					t.Error("nothing is cached")
				}
				next()
				a.must(c.change(a.e))
				a.is(100)
				next()
				a.must(c.again(a.e))
				a.is(200)
				a.must(a.e.Load(compile(t, "add 300 deny ip from any to any\n")))
				a.is(300)
			})
		}
	}
}

// raisesEpoch returns weir_evaluate_slow as a program in which a function, of at most two
// arguments, first raises config.epoch: what stands for a change on another CPU.
func (e *Engine) raisesEpoch(t *testing.T, function string) *ebpf.Program {
	t.Helper()
	spec := committed(t)
	e.sizeAsLoaded(spec)
	p := spec.Programs["weir_evaluate_slow"]
	at := slices.IndexFunc(p.Instructions, func(ins asm.Instruction) bool {
		f := btf.FuncMetadata(&ins)
		return f != nil && f.Name == function
	})
	if at < 0 {
		t.Fatalf("no function %s", function)
	}
	first := asm.LoadMapValue(asm.R3, 0, uint32(unsafe.Offsetof(e.config.Epoch)))
	first.Metadata, p.Instructions[at].Metadata = p.Instructions[at].Metadata, first.Metadata
	p.Instructions = slices.Insert(p.Instructions, at, first.WithReference("config"),
		asm.LoadMem(asm.R4, asm.R3, 0, asm.DWord), asm.Add.Imm(asm.R4, 1),
		asm.StoreMem(asm.R3, 0, asm.R4, asm.DWord))
	var raises *ebpf.Program
	if err := e.load(spec, map[string]**ebpf.Program{"weir_evaluate_slow": &raises}); err != nil {
		t.Fatalf("%+v", err)
	}
	return raises
}

// TestVerdictCacheDuringARename renames an interface while a packet is between the look-up of its
// name and the verdict cache. The packet may have the verdict of the old name, but later ones have
// that of the new name.
func TestVerdictCacheDuringARename(t *testing.T) {
	e := newEngine(t)
	if _, err := e.evaluator(); err != nil {
		t.Fatal(err)
	}
	raises := e.raisesEpoch(t, "verdict_lookup")
	defer raises.Close()
	for kind, rest := range map[string]string{
		"by rules":  "add 200 allow udp from any to any\n",
		"by states": "add 50 check-state\nadd 200 allow udp from any to any keep-state\n",
	} {
		t.Run(kind, func(t *testing.T) {
			stayOnFirstCPU(t)
			a := newAsker(t, e, "add 100 deny udp from any to any recv wan*\n"+
				"add 110 deny udp from any to any recv ext0\n"+rest)
			for name, number := range map[string]uint16{"wan0": 100, "ext0": 110} {
				a.must(e.SetInterfaces([]firewall.Interface{{Index: 7, Name: "lan0"}}))
				a.udp.SrcPort++ // another flow, which looks the same to the rules
				b := enginetest.Packet(t, a.ip, a.udp, build.Data("hello"))
				a.must(e.objects.SlowPaths.Put(uint32(slowEvaluate), raises))
				v, err := e.Evaluate(&a.Input, b)
				all := byName[ebpf.Program](&e.objects.weirPrograms)
				a.must(errors.Join(err, e.putSlowPaths(all)))
				if v.Rule != 200 {
					t.Fatalf("while the name was lan0: %+v", v)
				}
				var c weirConfig
				a.must(e.objects.Config.Lookup(uint32(0), &c))
				if c.Epoch != e.config.Epoch+1 {
					t.Fatalf("the epoch was raised from %d to %d", e.config.Epoch, c.Epoch)
				}
				// This writes the new name, and the epoch that the kernel has by now.
				a.must(e.SetInterfaces([]firewall.Interface{{Index: 7, Name: name}}))
				a.udp.SrcPort++
				a.is(number)
			}
		})
	}
}

// TestVerdictCacheSkipsPerPacketFields: what differs from packet to packet is not cached.
func TestVerdictCacheSkipsPerPacketFields(t *testing.T) {
	e := newEngine(t)
	for text, change := range map[string]func(*asker){
		"from any to any ipttl 5":        func(a *asker) { a.ip.TTL = 5 },
		"from any to any ipid 77":        func(a *asker) { a.ip.ID = 77 },
		"from any to any iptos lowdelay": func(a *asker) { a.ip.TOS = 0x10 },
		"from any to any dscp ef":        func(a *asker) { a.ip.TOS = 46 << 2 },
		"from any to any tagged 3":       func(a *asker) { a.Tags = []uint16{3} },
		"from any to any frag df":        func(a *asker) { a.ip.Flags = packet.FragDF },
		"from any to any out": func(a *asker) {
			a.Hook = firewall.Hook{Dir: firewall.Out, Xmit: 7}
		},
		"from any to any not recv any": func(a *asker) { a.Hook.Recv = 0 },
		"from 10.0.0.3 to any": func(a *asker) {
			a.ip.Src = netip.MustParseAddr("10.0.0.3")
		},
		"from any to 10.0.0.3":   func(a *asker) { a.ip.Dst = netip.MustParseAddr("10.0.0.3") },
		"from any 7 to any":      func(a *asker) { a.udp.SrcPort = 7 },
		"from any to any 7":      func(a *asker) { a.udp.DstPort = 7 },
		"from table(one) to any": func(a *asker) { a.ip.Src = netip.MustParseAddr("10.0.0.3") },
		"from any 7,8 to table(1)": func(a *asker) {
			a.udp.SrcPort = 7
			a.ip.Dst = netip.MustParseAddr("10.0.0.3")
		},
	} {
		t.Run(text, func(t *testing.T) {
			a := newAsker(t, e, "add 100 deny udp "+text+"\nadd 200 allow udp from any to any\n")
			three := rule.TableEntry{Prefix: netip.MustParsePrefix("10.0.0.3/32")}
			for _, table := range []string{"one", "1"} {
				a.must(a.e.AddTable(table, three))
			}
			a.is(200)
			change(a)
			a.is(100)
		})
	}
}

// TestVerdictCacheSkipsProbability: rules with prob take chances with each packet.
func TestVerdictCacheSkipsProbability(t *testing.T) {
	a := newAsker(t, newEngine(t),
		"add 100 prob 0.5 deny udp from any to any\nadd 200 allow udp from any to any\n")
	seen := map[uint16]int{}
	for n := range uint32(200) {
		a.Random = n * 0x9e3779b9
		b := enginetest.Packet(a.t, a.ip, a.udp, build.Data("hello"))
		v, err := a.e.Evaluate(&a.Input, b)
		a.must(err)
		seen[v.Rule]++
	}
	if seen[100] < 60 || seen[200] < 60 {
		t.Errorf("of 200 packets at even chances: %v", seen)
	}
}

// TestVerdictCacheCounts: cached verdicts count like others, and fields that no rule asks about
// share an entry.
func TestVerdictCacheCounts(t *testing.T) {
	a := newAsker(t, newEngine(t),
		"add 100 deny udp from any to any 7\nadd 200 allow udp from any to any\n")
	for n := range 50 {
		a.ip.Src, a.udp.SrcPort = netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), uint16(1000+n)
		a.is(200)
	}
	counters, err := a.e.Rules()
	a.must(err)
	for _, c := range counters {
		if want := map[uint16]uint64{200: 150}[c.Number]; c.Packets != want {
			t.Errorf("rule %d has counted %d packets, not %d", c.Number, c.Packets, want)
		}
	}
	// The test may have moved from one CPU to another.
	if n := a.e.cachedVerdicts(t); n == 0 || n > 2 {
		t.Errorf("50 flows that look the same to the rules have entries %d times", n)
	}
}

// TestVerdictCacheMakesStates: a cached rule takes its action for each flow.
func TestVerdictCacheMakesStates(t *testing.T) {
	a := newAsker(t, newEngine(t),
		"add 50 check-state\nadd 100 allow udp from any to any 9 limit src-addr 5\n"+
			"add 200 deny udp from any to any\n")
	for n := range 5 {
		a.udp.SrcPort = uint16(1000 + n)
		a.is(100)
	}
	states := 0
	for _, err := range a.e.States() {
		a.must(err)
		states++
	}
	if states != 5 {
		t.Errorf("5 flows have %d states", states)
	}
	a.udp.SrcPort = 1005
	b := enginetest.Packet(a.t, a.ip, a.udp, build.Data("hello"))
	if v, err := a.e.Evaluate(&a.Input, b); err != nil || v.Pass ||
		v.Reason != firewall.ReasonLimit {
		t.Errorf("the sixth flow of a source that may have five: %+v, %v", v, err)
	}
}

// TestStatesFollowTheirRules loads other rules while packets of a flow continue: each verdict has
// the number that its rule has by now, and none passes by a rule that is gone.
func TestStatesFollowTheirRules(t *testing.T) {
	a := newAsker(t, newEngine(t),
		"add 50 check-state\nadd 200 allow udp from any to any keep-state\n")
	for range 3 { // an image's slot is used again
		a.is(200)
		a.must(a.e.Load(compile(t,
			"add 40 deny tcp from any to any\nadd 50 check-state\n"+
				"add 300 allow udp from any to any keep-state\n")))
		a.is(300)
		a.must(a.e.Load(compile(t,
			"add 50 check-state\nadd 200 allow udp from any to any keep-state\n")))
	}
	a.is(200)
	a.must(a.e.Load(compile(t,
		"add 50 check-state\nadd 200 allow tcp from any to any keep-state\n")))
	a.is(65535)
}
