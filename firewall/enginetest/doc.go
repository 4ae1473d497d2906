// Package enginetest is the conformance suite that every engine must pass.
//
// Model is the reference model: a slow interpreter of parsed rules that is written to be obviously
// right. RandomCase draws rules of a part of the language, and a sequence of packets, sweeps, clock
// jumps and changes of tables, interfaces, routes and rules. Case.Run plays it to the model and to
// an engine, and returns the first difference: a verdict, a state, a counter.
//
// An engine's own test calls Run with its Features:
//
//	enginetest.Run(t, options, program.AllFeatures,
//		func(o firewall.Options) (enginetest.Subject, error) { ... })
//
// It prints the seeds that it plays. A difference is made smaller by leaving out steps and rules as
// long as it stays, and is printed with the rules, every step, the packets as text and in hex, and
// the seed, which the environment variable WEIR_SEED plays again. The seeds are always the same
// unless WEIR_SEED is "random". WEIR_DECISIONS is how many packets and other steps are played.
//
// RunCoverage plays cases that are always the same. It fails for every part of the language, state
// operation and reason that they never met, so that every addition to the language is compared.
//
// The package imports no engine. It shares flow's pure functions with them, which have tests of
// their own.
//
// The tables of an engine must have space for every state of a case (4096 do): each engine decides
// what happens when they are full, within the bounds of docs/design/0003-evaluation.md.
package enginetest
