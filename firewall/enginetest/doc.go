// Package enginetest is the conformance suite that every engine must pass.
//
// Model is the reference model: a slow interpreter of parsed rules that is written to be obviously
// right. RandomCase generates rules from a part of the language, and a sequence of packets, sweeps,
// clock jumps and changes of tables, interfaces, routes and rules. Case.Run runs it on the model
// and on an engine, and returns the first difference: a verdict, a state, a counter.
//
// An engine's own test calls Run with its Features:
//
//	enginetest.Run(t, options, program.AllFeatures,
//		func(o firewall.Options) (enginetest.Subject, error) { ... })
//
// It prints the seeds. A failing case is shrunk by leaving out steps and rules while the difference
// remains. It is printed with the rules, every step, the packets as text and in hex, and the seed;
// set the environment variable WEIR_SEED to this seed to repeat it. The seeds are always the same
// unless WEIR_SEED is "random". WEIR_DECISIONS is the number of packets and other steps.
//
// RunCoverage runs a fixed set of cases. It fails for every part of the language, state operation
// and reason that they do not use, so every addition to the language is compared.
//
// The package imports no engine. It shares only the pure functions of package flow with the
// engines; these have their own tests.
//
// The tables of an engine must have space for every state of a case (4096 do): each engine decides
// what happens when they are full, within the bounds of docs/design/0003-evaluation.md.
package enginetest
