// Package rule is the rule language of Weir: ipfw's grammar, parsed, checked, printed and compiled.
// It imports only the standard library and does no I/O. docs/rules.md is the reference of the
// language.
//
// # From text to a Program
//
// [ParseFile] reads a rule file into a [Ruleset]; [ParseLine] reads one command,
// which [Command.Apply] carries out on a Ruleset. Mistakes come back as [Errors], each with place,
// line, carets and hint:
//
//	set, err := rule.ParseFile("web.rules", text, nil)
//	var errs rule.Errors
//	if errors.As(err, &errs) {
//		fmt.Fprint(os.Stderr, errs.Report())
//	}
//
// [Compile] turns the enabled rules into a [Program] for an engine: flat arrays without pointers to
// syntax. A rule's index in it is its slot.
//
// # Rules
//
// A [Rule] is a list of clauses that must all be true; a [Clause] is a list of tests of which one
// must be; a [Test] is one condition, maybe negated. Header (PROTO from SRC to DST) and options are
// made of the same tests. Rules may be made by hand as well as parsed; [Rule.String] prints the
// canonical form, and parsing that gives the same rule.
//
// # The classifier
//
// [Classifier] holds bit vectors over equivalence classes. Each dimension (source, destination,
// ports, protocol, TCP flags, ICMP type, hook) maps a packet's value to a class and the class to a
// vector with one bit per slot. The AND of a packet's vectors has a bit for every rule whose baked
// conditions are true. A clause is baked if one dimension decides it alone: negation and or-blocks
// are set operations when the Program is made, and cost nothing when it runs. What is left of a
// rule is tested by [Cond] after its bit was found.
//
// The price of a packet is bounded for every rule set: one lookup per used dimension and
// ceil(rules/64) words per vector.
//
// compileFull makes a Program without baking, for Lint and for the tests.
package rule
