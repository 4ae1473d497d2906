package rule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/program"
)

// TestCheck damages a Program in each way that Check knows.
func TestCheck(t *testing.T) {
	const text = "add 1 skipto 3 udp from 10.0.0.0/8 to any iplen 40\n" +
		"add 2 count ip from any to any keep-state :x\nadd 3 call 2 ip from any to any"
	compiled := func() *program.Program {
		s, err := ParseFile("rules", text, nil)
		if err != nil {
			t.Fatal(err)
		}
		return mustCompile(t, s)
	}
	if err := compiled().Check(); err != nil {
		t.Fatal(err)
	}
	names := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint("n", i))
		}
		return all
	}
	for want, damage := range map[string]func(p *program.Program){
		"without a default rule": func(p *program.Program) { p.Rules = nil },
		"at most 16384": func(p *program.Program) {
			p.Rules = append(make([]program.Rule, program.MaxRules), p.Rules...)
		},
		"vectors of 2 words":    func(p *program.Program) { p.Classes.Words++ },
		"without the flow name": func(p *program.Program) { p.Flows = nil },
		"255 flow names: at most 254": func(p *program.Program) {
			p.Flows = names(program.MaxFlows + 2)
		},
		"257 tables: at most 256": func(p *program.Program) {
			p.Tables = names(program.MaxTables + 1)
		},
		"65 interface patterns": func(p *program.Program) {
			p.Globs = names(program.MaxGlobs + 1)
		},
		"rule 1: index 0":     func(p *program.Program) { p.Rules[0].Arg = 0 },
		"rule 2: index 1":     func(p *program.Program) { p.Rules[1].Flow = 2 },
		"rule 3: index 2":     func(p *program.Program) { p.Rules[2].Arg = 4 },
		"rule 65535: index 3": func(p *program.Program) { p.Rules[3].CondEnd = 99 },
		"the last rule must":  func(p *program.Program) { p.Rules[3].Prob = 1 },
	} {
		p := compiled()
		damage(p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	p := compiled()
	if p.Flows = names(program.MaxFlows + 1); p.Check() != nil {
		t.Error("254 flow names beside the default are refused")
	}
}
