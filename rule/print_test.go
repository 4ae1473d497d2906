package rule

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule/op"
)

// TestPrintParse prints random rules and parses them: the same rule must come back.
func TestPrintParse(t *testing.T) {
	seed := testrand.Seed(t)
	g := random{rand.New(rand.NewPCG(seed, 1))}
	for range 20000 {
		r := g.rule()
		text := r.String()
		got, err := ParseRule(text, nil)
		if err != nil {
			t.Fatalf("seed %d: %q: %v", seed, text, err)
		}
		got.Pos = Pos{}
		if !reflect.DeepEqual(got, r) {
			t.Fatalf("seed %d: %q\n made   %s parsed %s", seed, text, dumpRule(r), dumpRule(got))
		}
		if again := got.String(); again != text {
			t.Fatalf("seed %d: printed first %q then %q", seed, text, again)
		}
	}
}

// TestOptionWords checks that every option word is known to be kept or refused, not both, and that
// conditions have words that parse.
func TestOptionWords(t *testing.T) {
	for w := range options {
		if refusedOptions[w] != "" {
			t.Errorf("%q is both kept and refused", w)
		}
		if _, ok := services[w]; ok {
			t.Errorf("%q is both an option and a service", w)
		}
		if _, ok := packet.ProtoNumber(w); ok {
			t.Errorf("%q is both an option and a protocol", w)
		}
	}
	for w := range actions {
		if refusedActions[w] != "" {
			t.Errorf("%q is both kept and refused", w)
		}
	}
	for cond := op.CondTrue; cond <= op.CondAntiSpoof; cond++ {
		if cond.Word() == "unknown" {
			t.Errorf("condition %d has no word", cond)
		}
	}
}
