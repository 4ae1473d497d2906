package firewall_test

import (
	"fmt"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/rule"
)

// A program loads rules into any engine, and says later what was dropped and why. Package soft has
// an example that makes an engine and evaluates packets.
func ExampleEngine() {
	load := func(e firewall.Engine, text string) error {
		set, err := rule.ParseFile("rules", text, nil)
		if err != nil {
			return err
		}
		program, err := rule.Compile(set, rule.CompileOptions{Strict: true})
		if err != nil {
			return err
		}
		return e.Load(program)
	}
	report := func(e firewall.Engine) error {
		all, err := e.Decisions()
		if err != nil {
			return err
		}
		for d, n := range all {
			if !d.Pass {
				fmt.Println(d.Dir, d.Reason, n.Packets, "packets dropped")
			}
		}
		return nil
	}
	_, _ = load, report
}

// An event prints with words for what happened, where, and why.
func ExampleEvent() {
	e := firewall.Event{Kind: firewall.EventDrop, Hook: firewall.Hook{Dir: firewall.In, Recv: 2},
		Proto:   6,
		Verdict: firewall.Verdict{Rule: 200, Answer: firewall.AnswerReset}}
	fmt.Println(e.Kind, e.Proto, e.Hook.Dir, "by rule", e.Verdict.Rule, "reason", e.Verdict.Reason,
		"answer", e.Verdict.Answer)
	// Output: drop tcp in by rule 200 reason rule answer reset
}
