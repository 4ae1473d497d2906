package main

import (
	"fmt"

	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/rule"
)

// lintAnswer is what `fw lint -j` prints.
type lintAnswer struct {
	Version  int           `json:"version"`
	File     string        `json:"file"`
	Rules    int           `json:"rules"`
	Findings []lintFinding `json:"findings"`
	// numbers of rules with too many cases to decide
	Undecided []uint16 `json:"undecided,omitempty"`
	// what a host usually needs and the rules do not let pass
	Forgotten []lintOmission `json:"forgotten"`
}

type lintOmission struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// omissionKinds are the words for what rules forget.
var omissionKinds = map[rule.Omission]string{
	rule.NoSSH: "ssh", rule.NoICMPErrors: "icmp-errors", rule.NoTooBig: "packet-too-big",
	rule.NoNeighbours: "neighbour-discovery", rule.NoDHCP: "dhcp", rule.NoLoopback: "loopback",
}

type lintFinding struct {
	Kind     string   `json:"kind"`
	Rule     uint16   `json:"rule"`
	Line     int      `json:"line"`
	Text     string   `json:"text"`
	By       []uint16 `json:"by,omitempty"`
	Opposite bool     `json:"opposite,omitempty"`
	Message  string   `json:"message"`
}

// lintKinds are the words for kinds of findings.
var lintKinds = map[rule.FindingKind]string{
	rule.Never: "never", rule.Duplicate: "duplicate", rule.Shadowed: "shadowed",
	rule.Covered: "covered", rule.Unreachable: "unreachable",
}

func fwLintCommand(c *call) action {
	asJSON := c.json("")
	c.takes(1, 1)
	return func() error {
		name, text, err := c.readFile(c.Arg(0))
		if err != nil {
			return c.failed(err)
		}
		set, err := rulefile.Check(name, text)
		if err != nil {
			return c.failed(err)
		}
		findings, undecided, err := rule.Lint(set)
		if err != nil {
			return c.failed(err)
		}
		n, _ := c.nodeConfig("", nil) // the defaults, if they cannot be read
		forgotten, err := rule.Omissions(set, rule.Host{
			Neighbours: n.Settings.Engine.NoEssential, DHCP: n.Settings.Engine.NoDHCP,
			Loopback: n.Settings.Host.Guards("lo")})
		if err != nil {
			return c.failed(err)
		}
		a := lintAnswer{Version: 1, File: name, Rules: len(set.Rules), Findings: []lintFinding{},
			Forgotten: []lintOmission{}}
		for _, o := range forgotten {
			a.Forgotten = append(a.Forgotten, lintOmission{omissionKinds[o], o.String()})
		}
		for _, f := range findings {
			one := lintFinding{Kind: lintKinds[f.Kind], Rule: f.Rule.Number, Line: f.Rule.Pos.Line,
				Text: f.Rule.Text(), Opposite: f.Opposite, Message: f.String()}
			for _, by := range f.By {
				one.By = append(one.By, by.Number)
			}
			a.Findings = append(a.Findings, one)
		}
		for _, r := range undecided {
			a.Undecided = append(a.Undecided, r.Number)
		}
		if *asJSON {
			err = printJSON(c.out, a)
		} else {
			c.printLint(a, findings)
		}
		if err == nil && len(findings) > 0 {
			return statusError(1)
		}
		return err
	}
}

// printLint prints each rule without effect with the rules that match its packets first, and what
// the rules forget.
func (c *call) printLint(a lintAnswer, findings []rule.Finding) {
	for _, f := range findings {
		fmt.Fprintf(c.out, "%s:%d: %s\n", c.show(a.File), f.Rule.Pos.Line, f)
		fmt.Fprintf(c.out, "    %05d %s\n", f.Rule.Number, c.show(f.Rule.Text()))
		for _, by := range f.By {
			fmt.Fprintf(c.out, "    %05d %s\n", by.Number, c.show(by.Text()))
		}
	}
	for _, number := range a.Undecided {
		fmt.Fprintf(c.out, "rule %d: too many cases to decide\n", number)
	}
	for _, o := range a.Forgotten {
		fmt.Fprintf(c.out, "%s: %s\n", c.show(a.File), o.Message)
	}
	if len(findings) == 0 {
		fmt.Fprintf(c.out, "%s: every one of %s can match\n", c.show(a.File),
			plural(a.Rules-len(a.Undecided), "rule"))
	}
}
