package rule

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// TestCache edits rules at random. What a Cache compiles is what Compile does.
func TestCache(t *testing.T) {
	s := ruleset(t, mixedRules(300))
	first, others := s.Rules, ruleset(t, scatteredRules(400)).Rules
	g := rand.New(rand.NewPCG(5, 6))
	var c Cache
	kept := 0
	for round := range 60 {
		s = s.Clone()
		for range g.IntN(4) {
			at := g.IntN(len(s.Rules))
			switch g.IntN(5) {
			case 0:
				n := g.IntN(1 + len(s.Rules)/10)
				s.Rules = slices.Delete(s.Rules, at, min(at+n, len(s.Rules)))
			case 1:
				s.Add(others[g.IntN(len(others))])
			case 2:
				s.Add(s.Rules[at]) // the same rule once more
			case 3:
				s.Disabled ^= 1
			case 4: // another rule in its place, with the same number
				changed := *s.Rules[at]
				changed.Log = !changed.Log
				s.Rules[at] = &changed
			}
		}
		if round%8 == 7 { // many more conditions, or fewer
			s.Rules = slices.Clone([][]*Rule{first, others, others[:20]}[round/8%3])
		}
		before := c.parts
		got, err := c.Compile(s, CompileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range c.parts {
			if p.rule.Number != 65535 && slices.ContainsFunc(before, func(old part) bool {
				return old.rule == p.rule
			}) {
				kept++
			}
		}
		want := mustCompile(t, s)
		w, g := reflect.ValueOf(*want), reflect.ValueOf(*got)
		for i := range w.NumField() {
			if !reflect.DeepEqual(w.Field(i).Interface(), g.Field(i).Interface()) {
				t.Fatalf("round %d: another %s", round, w.Type().Field(i).Name)
			}
		}
	}
	if kept < 1000 {
		t.Errorf("only %d rules were known from before", kept)
	}
}
