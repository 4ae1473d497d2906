package rule

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/rule/op"
)

func mustCompile(t testing.TB, s *Ruleset) *program.Program {
	t.Helper()
	p, err := Compile(s, CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCompileMeaning compares, for random rules and packets, what every single rule says: by its
// parsed form, by the full conditions, and by vectors plus residue.
func TestCompileMeaning(t *testing.T) {
	seed := testrand.Seed(t)
	g := random{rand.New(rand.NewPCG(seed, 2))}
	baked, residual := 0, 0
	for range 100 {
		s := g.compilable(t, 1+g.IntN(150))
		fast := mustCompile(t, s)
		full, err := compileFull(s, CompileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		residual += len(fast.Conds)
		baked += len(full.Conds) - len(fast.Conds)
		rules := append(s.Active(), &Rule{Number: program.DefaultNumber})
		for range 200 {
			p := g.tuple()
			vector, ones := candidates(&fast.Classes, p), candidates(&full.Classes, p)
			for slot, r := range rules {
				want := p.match(r)
				got := vector[slot/64]>>(slot%64)&1 == 1 && p.residue(fast, slot)
				slow := ones[slot/64]>>(slot%64)&1 == 1 && p.residue(full, slot)
				if got != want || slow != want {
					t.Fatalf("seed %d: rule %q, packet %+v: parsed %v, compiled %v, full %v", seed,
						r, p, want, got, slow)
				}
			}
			if spare := len(rules) % 64; spare != 0 && vector[len(vector)-1]>>spare != 0 {
				t.Fatalf("seed %d: bits beyond the last slot", seed)
			}
		}
	}
	if baked < residual/2 {
		t.Errorf("only %d conditions were baked, %d were not", baked, residual)
	}
}

// compilable draws rules until there are some through which no packet walks for too long (MaxWalk).
func (g *random) compilable(t *testing.T, n int) *Ruleset {
	t.Helper()
	for range 1000 {
		s := new(Ruleset)
		for range n {
			s.Add(g.rule())
		}
		if _, err := compileFull(s, CompileOptions{}); err == nil ||
			!strings.Contains(err.Error(), "steps through these rules") {
			return s
		}
	}
	t.Fatalf("no %d random rules are short enough", n)
	return nil
}

// TestCompileSame checks that but for conditions and vectors the two kinds of Program are equal.
func TestCompileSame(t *testing.T) {
	g := random{rand.New(rand.NewPCG(3, 3))}
	s := g.compilable(t, 300)
	fast := mustCompile(t, s)
	full, err := compileFull(s, CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for slot := range fast.Rules {
		a, b := fast.Rules[slot], full.Rules[slot]
		a.Cond, a.CondEnd, b.Cond, b.CondEnd = 0, 0, 0, 0
		if a != b {
			t.Errorf("slot %d: %+v, full %+v", slot, a, b)
		}
	}
	if fast.First != full.First || !slices.Equal(fast.Texts, full.Texts) {
		t.Error("First or Texts differ")
	}
	for dim := range program.NumDims {
		if full.Classes.Used[dim] || full.Classes.Vectors[dim].Len() != 1 {
			t.Errorf("the full program uses dimension %d", dim)
		}
		vector := full.Classes.Vectors[dim].Dense()
		for slot := range full.Rules {
			if vector[slot/64]>>(slot%64)&1 == 0 {
				t.Errorf("dimension %d excludes slot %d of the full program", dim, slot)
			}
		}
	}
}

func TestCompiledGolden(t *testing.T) {
	for _, path := range goodFiles(t) {
		golden(t, outPath(path, "compiled"), dumpProgram(mustCompile(t, load(t, path))))
	}
}

// dumpProgram shows what is the same whenever the rules mean the same: Codes, conditions, and the
// vectors by rule.
func dumpProgram(p *program.Program) string {
	var b strings.Builder
	fmt.Fprintf(&b, "first %d features %#x flows %v tables %v names %v globs %v\n",
		p.First, uint64(p.Features), p.Flows, p.Tables, p.Names, p.Globs)
	for _, x := range p.NATs {
		fmt.Fprintf(&b, "nat %d %s\n", x.Number, FormatNAT(&x))
	}
	if len(p.NextHops) > 0 {
		fmt.Fprintf(&b, "hops %v\n", p.NextHops)
	}
	for slot, c := range p.Rules {
		fmt.Fprintf(&b,
			"%d: %016x %d %s\n  set=%d %v arg=%d tag=%d prob=%#x state=%d flow=%d mask=%d "+
				"limit=%d defer=%v log=%v/%d liberal=%v frag=%v\n",
			slot, c.Key, c.Number, p.Texts[slot], c.Set, c.Action, c.Arg, c.Tag, c.Prob,
			c.State, c.Flow, c.Mask, c.Limit, c.Defer, c.Log, c.LogMax, c.Liberal, c.Frag)
		if c.Every != 0 {
			fmt.Fprintf(&b, "  every=%v burst=%d mask=%d next=%v\n", c.Every, c.Burst, c.RateMask,
				c.RateNext)
		}
		if c.Pipe != 0 {
			fmt.Fprintf(&b, "  pipe %+v\n", p.Pipes[c.Pipe-1])
		}
		for _, cond := range p.Conds[c.Cond:c.CondEnd] {
			fmt.Fprintf(&b, "  %s#%d flags=%d n=%d a=%#x b=%#x %v\n", cond.Op.Word(), cond.Op,
				cond.Flags, cond.N, cond.A, cond.B, testOf(p, cond))
		}
	}
	fmt.Fprintf(&b, "classes")
	for dim := range program.NumDims {
		fmt.Fprintf(&b, " %d", p.Classes.Vectors[dim].Len())
	}
	fmt.Fprintf(&b, " blocks %d %d\nsrc6 %v default %d\ndst6 %v default %d\n",
		len(p.Classes.Src.Directory().Blocks)/256, len(p.Classes.Dst.Directory().Blocks)/256,
		p.Classes.Src.V6, p.Classes.Src.Default6, p.Classes.Dst.V6, p.Classes.Dst.Default6)
	return b.String()
}

func ruleset(t testing.TB, text string) *Ruleset {
	t.Helper()
	s, err := ParseFile("test", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTargets(t *testing.T) {
	p := mustCompile(t, ruleset(t, `
add 10 skipto 10 ip from any to any
add 10 skipto 5 ip from any to any
add 10 call 1 ip from any to any
add 20 skipto 25 ip from any to any
add 20 skipto 30 ip from any to any
add 30 call 30 ip from any to any
add 30 skipto 31 ip from any to any
add 40 call 65535 ip from any to any
`))
	want := []uint32{3, 3, 0, 5, 5, 5, 7, 8, 0}
	for slot, c := range p.Rules {
		if c.Arg != want[slot] {
			t.Errorf("slot %d (%s) goes to %d, not %d", slot, p.Texts[slot], c.Arg, want[slot])
		}
	}
}

// TestKeys holds identity: it outlives other rules, comments and sets, and tells equal rules apart.
func TestKeys(t *testing.T) {
	keys := func(text string) (out []uint64) {
		for _, c := range mustCompile(t, ruleset(t, text)).Rules {
			out = append(out, c.Key)
		}
		return out
	}
	a := keys("add 10 allow tcp from any to any 80\nadd 10 pass tcp from any to any http\n" +
		"add 20 allow tcp from any to any 80\n")
	b := keys("add 5 count ip from any to any\n" +
		"add 10 set 3 permit tcp from any to any www // new words\n" +
		"add 20 allow tcp from any to any 443\n")
	if a[0] == a[1] || a[0] == a[2] {
		t.Errorf("different rules have one key: %x", a)
	}
	if b[1] != a[0] {
		t.Errorf("the same rule has keys %x and %x", a[0], b[1])
	}
	if b[2] == a[2] || b[3] != a[3] {
		t.Errorf("%x, %x", a, b)
	}
	for _, k := range append(a, b...) {
		if k == 0 {
			t.Error("a key is 0")
		}
	}
}

func TestCompileSets(t *testing.T) {
	s := ruleset(t,
		"add 1 set 1 allow ip from any to any\nadd 2 set 2 allow tcp from any to any\n"+
			"set disable 1\n")
	p, err := Compile(s, CompileOptions{Default: op.ActionAllow, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Rules) != 2 || p.Rules[0].Number != 2 || p.Rules[1].Action != op.ActionAllow ||
		!p.Strict {
		t.Errorf("%+v", p.Rules)
	}
	if _, err := Compile(s, CompileOptions{Default: op.ActionCount}); err == nil {
		t.Error("count as default rule was taken")
	}
}

// TestLimits holds the limits of a Program with the rule that breaks each.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		what   string
		n      int
		option func(i int) string
		want   string
	}{
		{"flow names", program.MaxFlows, func(i int) string {
			return fmt.Sprintf("keep-state :f%d", i)
		}, "255: \"f254\" is one of more than 255 different flow names"},
		{"tables", program.MaxTables, func(i int) string {
			return fmt.Sprintf("src-ip table(t%d)", i)
		}, "tables"},
		{"globs", program.MaxGlobs, func(i int) string {
			return fmt.Sprintf("via e%d*", i)
		}, "interface patterns"},
		{"names", program.MaxNames, func(i int) string {
			return fmt.Sprintf("via e%d", i)
		}, "interface names"},
	} {
		s := new(Ruleset)
		for i := range c.n + 1 {
			r, err := ParseRule(fmt.Sprintf("%d allow ip from any to any %s", i+1, c.option(i)),
				nil)
			if err != nil {
				t.Fatal(err)
			}
			if i == c.n {
				if _, err := Compile(s, CompileOptions{}); err != nil {
					t.Errorf("%d %s: %v", i, c.what, err)
				}
			}
			s.Add(r)
		}
		_, err := Compile(s, CompileOptions{})
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), fmt.Sprintf("rule %d", c.n+1)) {
			t.Errorf("%d %s: %v", c.n+1, c.what, err)
		}
	}
	many := &Ruleset{Rules: make([]*Rule, program.MaxRules)}
	for i := range many.Rules {
		many.Rules[i] = &Rule{Number: 1, Action: Action{Op: op.ActionCount}}
	}
	if _, err := Compile(many, CompileOptions{}); err == nil ||
		!strings.Contains(err.Error(), "16384 rules") {
		t.Errorf("too many rules: %v", err)
	}
	many.Rules = many.Rules[1:]
	if p, err := Compile(many, CompileOptions{}); err != nil || len(p.Rules) != program.MaxRules {
		t.Errorf("the most rules: %v", err)
	}
}

// TestClasses6 compares the longest-prefix table with the sorted borders, for nested, touching and
// covering prefixes.
func TestClasses6(t *testing.T) {
	g := random{rand.New(rand.NewPCG(5, 5))}
	pool := []string{"::/0", "::/1", "8000::/1", "::/96", "::/64", "::/128", "2001:db8::/32",
		"2001:db8::/33", "2001:db8:8000::/33", "2001:db8::/34",
		"2001:db8::1/128", "::fffe:0:0/96", "::1:0:0:0/80", "ffff::/16",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", "0.0.0.0/0", "10.0.0.0/8"}
	for range 300 {
		s := new(Ruleset)
		var baked []limited
		for i := range 1 + g.IntN(6) {
			test := Test{Op: op.CondSrcIn, Not: g.chance(20)}
			for range 1 + g.IntN(2) {
				test.Prefixes = append(test.Prefixes,
					netip.MustParsePrefix(pool[g.IntN(len(pool))]))
			}
			s.Add(&Rule{Number: uint16(i + 1), Action: Action{Op: op.ActionCount},
				Src: Clause{test}})
			baked = append(baked, limited{slot: i, spans: test.spans(program.DimSrc)})
		}
		borders, err := (&workspace{limits: baked}).classify(len(baked)+1,
			dimRange[program.DimSrc])
		if err != nil {
			t.Fatal(err)
		}
		a := &mustCompile(t, s).Classes.Src
		for _, text := range pool {
			p := netip.MustParsePrefix(text)
			if p.Addr().Is4() {
				continue
			}
			span := prefixSpan(p)
			for _, k := range []key{span.lo, span.hi, span.lo.prev(), span.hi.next()} {
				if mapped.lo.compare(k) <= 0 && k.compare(mapped.hi) <= 0 {
					continue
				}
				want := borders.at(k)
				got, most := a.Default6, -1
				for _, pc := range a.V6 {
					if sp := prefixSpan(pc.Prefix); sp.lo.compare(k) <= 0 &&
						k.compare(sp.hi) <= 0 && pc.Prefix.Bits() > most {
						got, most = pc.Class, pc.Prefix.Bits()
					}
				}
				if got != want {
					t.Fatalf("%s: %016x%016x has class %d by longest prefix %v, %d by borders",
						printRuleset(s), k.hi, k.lo, got, a.V6, want)
				}
			}
		}
	}
}

// TestThreshold checks that Mix(random, slot) >= P * 2^32 and the threshold say the same at the
// border.
func TestThreshold(t *testing.T) {
	for _, c := range []struct {
		p    float64
		want uint32
	}{{0, 0}, {0.5, 1 << 31}, {0.25, 1 << 30}, {1e-300, 1}, {1.0 / (1 << 32), 1},
		{1.5 / (1 << 32), 2}, {1 - 1e-9, 4294967292}, {1 - 1e-15, 0}} {
		if got := threshold(c.p); got != c.want {
			t.Errorf("threshold(%g) = %d, not %d", c.p, got, c.want)
		}
	}
}

// TestHandMade compiles rules that no parser made: empty clauses are true, bits behind a prefix
// mean nothing.
func TestHandMade(t *testing.T) {
	r := &Rule{
		Number: 1, Action: Action{Op: op.ActionAllow}, Proto: Clause{},
		Options: []Clause{{}, {{Op: op.CondIn}}}, DstPort: Clause{},
		Src: Clause{{Op: op.CondSrcIn, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/8"),
			netip.MustParsePrefix("2001:db8::1/32")}}},
	}
	s := new(Ruleset)
	s.Add(r)
	p := mustCompile(t, s)
	for text, want := range map[string]uint64{"10.0.0.1": 1, "11.0.0.1": 0, "2001:db8::": 1,
		"2001:db7::": 0} {
		a := netip.MustParseAddr(text)
		vector := candidates(&p.Classes, &tuple{src: a, dst: a, proto: 6})
		if vector[0]&1 != want {
			t.Errorf("%s: candidates %b", text, vector[0])
		}
	}
	if want := "1 allow ip from 10.1.2.3/8,2001:db8::1/32 to any in"; r.String() != want {
		t.Errorf("%q", r)
	}
}
