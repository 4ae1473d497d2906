// Package rulefile reads rule files with this machine's names, and turns the tables of a rule set
// into what engines take and looks addresses up in them. The running agent and package offline use
// it.
package rulefile

import (
	"os"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// SystemNames are the names of services and protocols of this machine, beside those that Weir knows
// by itself. A machine without these files has fewer names.
func SystemNames() *rule.Names {
	n := new(rule.Names)
	for _, from := range []struct {
		path string
		read func(*os.File) error
	}{
		{"/etc/services", func(f *os.File) error { return n.ReadServices(f) }},
		{"/etc/protocols", func(f *os.File) error { return n.ReadProtocols(f) }},
	} {
		f, err := os.Open(from.path)
		if err != nil {
			continue
		}
		from.read(f) // a file that ends early gives fewer names, too
		f.Close()
	}
	return n
}

// Parse reads a rule file and compiles it, so that it can be enforced. What no rule matches is
// denied.
func Parse(name, text string, names *rule.Names) (*rule.Ruleset, *program.Program, error) {
	set, err := rule.ParseFile(name, text, names)
	if err != nil {
		return nil, nil, err
	}
	p, err := rule.Compile(set, rule.CompileOptions{Default: op.ActionDeny, Strict: true})
	return set, p, err
}

// ParseGiven is Parse for a file that the owner gives to be put in force: it holds a rule.
func ParseGiven(name, text string, names *rule.Names) (*rule.Ruleset, error) {
	set, _, err := Parse(name, text, names)
	if err != nil {
		return nil, err
	}
	return set, notEmpty(name, set)
}

// Check reads a rule file and makes sure that it can be enforced.
func Check(name, text string) (*rule.Ruleset, error) {
	set, err := ParseGiven(name, text, SystemNames())
	if err != nil {
		return nil, err
	}
	return set, ReadLists(set, nil, ReadList)
}
