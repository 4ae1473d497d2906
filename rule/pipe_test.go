package rule

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule/op"
)

// TestPipesOfAProgram: rules that name one pipe share it. A pipe without a bound carries
// everything, and one without a configuration drops, as in ipfw. What no rule names is left out.
func TestPipesOfAProgram(t *testing.T) {
	p := mustCompile(t, ruleset(t, `
pipe 1 config bw 8Mbit/s queue 10KBytes burst 2K
pipe 2 config
pipe 4 config bw 1Gbit/s
add 10 pipe 1 ip from any to any out
add 20 pipe 2 ip from any to any
add 30 pipe 3 ip from any to any
add 40 pipe 1 tcp from any to any
set disable 5
add 50 set 5 pipe 4 ip from any to any
`))
	want := []struct {
		action op.Action
		pipe   uint16
	}{{op.ActionAllow, 1}, {op.ActionAllow, 0}, {op.ActionDeny, 0}, {op.ActionAllow, 1},
		{op.ActionDeny, 0}}
	for slot, w := range want {
		if r := p.Rules[slot]; r.Action != w.action || r.Pipe != w.pipe {
			t.Errorf("slot %d: %v, pipe %d", slot, r.Action, r.Pipe)
		}
	}
	if len(p.Pipes) != 1 {
		t.Fatalf("%d pipes", len(p.Pipes))
	}
	x := &p.Pipes[0]
	if x.Depth != 12288*time.Microsecond || x.Cost(1500) != 1500*time.Microsecond || x.Masked() {
		t.Errorf("%+v: %v for 1500 bytes", x, x.Cost(1500))
	}
}

// TestPipeLastsATick: a bucket holds at least what the bandwidth carries from one tick of the
// kernel's clock to the next, up to 10 ms. By a smaller one a fast pipe would carry less.
func TestPipeLastsATick(t *testing.T) {
	for config, want := range map[string]time.Duration{
		"bw 60Mbit/s":               10 * time.Millisecond, // 50 packets of 1500 bytes
		"bw 50Mbit/s":               12 * time.Millisecond,
		"bw 1Gbit/s":                10 * time.Millisecond,
		"bw 100Gbit/s queue 2":      10 * time.Millisecond,
		"bw 1Gbit/s burst 10000000": 80600 * time.Microsecond,
	} {
		p := mustCompile(t, ruleset(t, "pipe 1 config "+config+"\nadd pipe 1 ip from any to any\n"))
		if x := &p.Pipes[0]; x.Depth != want {
			t.Errorf("%s holds %v, not %v", config, x.Depth, want)
		}
	}
}

// TestPipeKeepsItsIdentity: as long as number and configuration stay, whatever order they are
// written in.
func TestPipeKeepsItsIdentity(t *testing.T) {
	key := func(config string) uint64 {
		return mustCompile(t, ruleset(t, config+"\nadd pipe 1 ip from any to any\n"+
			"add pipe 2 ip from any to any\n")).Pipes[0].Key
	}
	first := key("pipe 1 config bw 1Mbit/s queue 20KBytes mask src-ip 0xff")
	if same := key("pipe 1 config mask src-ip /8 queue 20K bw 1000Kbit/s"); same != first {
		t.Errorf("%x, then %x", first, same)
	}
	for _, other := range []string{"pipe 1 config bw 1Mbit/s queue 21KBytes mask src-ip 0xff",
		"pipe 2 config bw 1Mbit/s queue 20KBytes mask src-ip 0xff"} {
		if key(other) == first {
			t.Errorf("%s has the same key", other)
		}
	}
}

// TestPipeNeverCarriesMore: rounding makes a pipe narrower, by less than a thousandth, at every
// bandwidth.
func TestPipeNeverCarriesMore(t *testing.T) {
	for _, bw := range []uint64{MinBandwidth, 1001, 56_000, 3_333_333, 1e9, 7_777_777_777,
		MaxBandwidth} {
		x := (&Pipe{Bandwidth: bw, Queue: defaultSlots}).compiled(1)
		if x.PerByte > program.MaxPerByte {
			t.Errorf("%d bit/s: %d is more than an engine takes", bw, x.PerByte)
		}
		const n = 1 << 24 // bytes
		sent := float64(x.Cost(n)) * float64(bw) / 8 / 1e9
		if sent < n || sent > n*1.001 {
			t.Errorf("%d bit/s: %d bytes take the time of %.0f", bw, n, sent)
		}
	}
}

// TestMoreNeverCostsLess: no packet is so long that its cost overflows.
func TestMoreNeverCostsLess(t *testing.T) {
	for _, bw := range []uint64{MinBandwidth, 1001, 56_000, 1e9, MaxBandwidth} {
		x := (&Pipe{Bandwidth: bw, Queue: defaultSlots}).compiled(1)
		last := time.Duration(0)
		for n := uint32(1); n < math.MaxUint32/2; n += n/2 + 1 {
			if now := x.Cost(n); now < last || now > program.MaxCost {
				t.Errorf("%d bit/s: %d bytes cost %v, fewer %v", bw, n, now, last)
			} else {
				last = now
			}
		}
		if all := x.Cost(math.MaxUint32); all < last || all > program.MaxCost {
			t.Errorf("%d bit/s: the longest costs %v, a shorter one %v", bw, all, last)
		}
	}
}

// TestOnePassHasToBeEnabled: with one_pass disabled ipfw's packets continue behind a pipe. Weir's
// do not, so it refuses the rules instead of letting more pass.
func TestOnePassHasToBeEnabled(t *testing.T) {
	s := ruleset(t, "disable one_pass\npipe 1 config bw 1Mbit/s\nadd 100 pipe 1 ip from any to any\n")
	if _, err := Compile(s, CompileOptions{}); err == nil ||
		!strings.Contains(err.Error(), "rule 100: one_pass is disabled") {
		t.Errorf("got %v", err)
	}
	for _, line := range []string{"set disable 5\nadd 1 set 5 pipe 1 ip from any to any\n" +
		"disable one_pass\n", "disable one_pass\nenable one_pass\nadd pipe 1 ip from any to any\n",
		"disable one_pass\n"} {
		if _, err := Compile(ruleset(t, line), CompileOptions{}); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	if c := s.Clone(); !c.ManyPass || len(c.Pipes) != 1 {
		t.Errorf("the clone: %+v", c)
	}
}

// TestPipesCountAsRules: both have ids of one pool.
func TestPipesCountAsRules(t *testing.T) {
	var b strings.Builder
	for range program.MaxRules/2 + 1 {
		b.WriteString("add count ip from any to any\n")
	}
	s := ruleset(t, b.String())
	s.Pipes = map[uint16]*Pipe{}
	for n := range uint16(program.MaxRules/2 - 2) {
		s.Pipes[n+1] = &Pipe{Bandwidth: MinBandwidth, Queue: 2}
		s.Rules[n] = &Rule{Number: s.Rules[n].Number,
			Action: Action{Op: op.ActionPipe, Arg: uint32(n + 1)}}
	}
	if _, err := Compile(s, CompileOptions{}); err != nil {
		t.Errorf("as many as there may be: %v", err)
	}
	s.Add(&Rule{Number: 60000, Action: Action{Op: op.ActionCount}})
	if _, err := Compile(s, CompileOptions{}); err == nil ||
		!strings.Contains(err.Error(), "rules and pipes") {
		t.Errorf("one more: %v", err)
	}
}
