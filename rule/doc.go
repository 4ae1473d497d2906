// Package rule is the rule language of Weir: ipfw's grammar, parsed, checked, printed and compiled.
// It imports only the standard library and does no I/O. docs/rules.md is the reference of the
// language.
//
// # From text to a Program
//
// [ParseFile] reads a rule file into a [Ruleset]; [ParseLine] reads one command, which
// [Command.Apply] applies to a Ruleset. Mistakes are returned as [Errors], each with place, line,
// carets and hint:
//
//	set, err := rule.ParseFile("web.rules", text, nil)
//	var errs rule.Errors
//	if errors.As(err, &errs) {
//		fmt.Fprint(os.Stderr, errs.Report())
//	}
//
// [Compile] turns the enabled rules into a [Program], which the engines of package firewall load.
//
// # Rules
//
// A [Rule] is a list of clauses that must all be true. A [Clause] is a list of tests, at least one
// of which must be true. A [Test] is one condition, which may be negated. Header (PROTO from SRC to
// DST) and options are made of the same tests. Rules may be parsed or constructed in Go.
// [Rule.String] prints the canonical form; parsing it gives the same rule.
//
// The operations that rules are made of, such as op.ActionAllow and op.CondSrcIn, are in package
// rule/op.
package rule
