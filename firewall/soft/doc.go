// Package soft is the user-space engine: it runs a program.Program over packets, keeps states, and
// needs no kernel. It filters the tunnel, evaluates captures, and explains why a packet got its
// verdict. Other programs can import it: examples/tunfilter filters a TUN device in under 60 lines.
//
//	rules, err := rule.ParseFile("rules", text, nil)
//	...
//	program, err := rule.Compile(rules, rule.CompileOptions{Strict: true})
//	...
//	fw, err := soft.New(soft.Options{Options: firewall.DefaultOptions()})
//	...
//	err = fw.Load(program)
//	w := fw.Worker(0)
//	in := firewall.Input{Hook: firewall.Hook{Dir: firewall.In, Recv: 1}, Now: now,
//		Random: rand.Uint32()}
//	if v := w.Evaluate(&in, packet); !v.Pass {
//		... // v.Reason and v.Rule say why, v.Answer what to send back
//	}
//
// Packets begin with the IP header. A new engine passes everything until Load is called.
//
// # Workers
//
// An engine has a fixed number of Workers, one for each goroutine that evaluates packets. A worker
// owns a shard of the states, so that workers share nothing but counters, which they update in
// batches. Use EvaluateBatch where packets come in batches: it takes the shard once for many
// packets. Hold keeps the shard from one Evaluate to the next. Evaluate alone takes it for each
// packet.
//
// Packets of one flow should reach the same worker, in both directions: Steer returns which one.
// Otherwise the worker borrows the other's shard for that packet. The verdict is the same and only
// costs more.
//
// # Changes
//
// Load, SetTable, AddTable, DeleteTable, SetInterfaces and SetRoutes may be called at any time from
// any goroutine. Workers continue meanwhile. Each packet is evaluated wholly by the old or wholly
// by the new configuration. States and counters of a rule stay if the new Program has a rule of the
// same number and text. Other states end. DeleteStates ends chosen states.
//
// # Time
//
// The engine reads no clock. Every packet comes with its time, and Tick, called some hundred times
// in a second for each worker, gives the memory of expired states back in small pieces. Deadlines
// hold whether Tick is called or not. Tick also hands out keepalive probes for idle TCP connections
// near their end, and resets for both ends of those that DeleteStates has ended. The caller sends
// these packets.
//
// # Memory
//
// All tables are made by New and do not grow: about 160 bytes for each of MaxStates, with the space
// for half-open states. When they are full, closed and expired states are evicted first, then
// half-open ones. An established state is never ended for another: the new one is refused with a
// reason. No packet costs more than two sets of eight entries, whatever an attacker sends, since a
// secret decides which sets those are. Evaluate does not allocate.
//
// # Answers
//
// A verdict may ask for an answer (rules with reset, reject, unreach). Answer builds it; the caller
// sends it and limits the rate.
//
// # Seeing what happens
//
// Rules, Drops and States read counters and states. Options.OnEvent gets an event for every state
// that begins or ends, every drop, and every match of a rule with log; nil costs nothing. Explain
// returns the verdict that a packet would get, with every rule that was tried and why it did not
// act. Check does the same for a flow that has not begun. Neither changes anything.
//
// # Correctness
//
// docs/design/0003-evaluation.md is the specification of every verdict. Tests compare the engine
// with the slow reference model in firewall/enginetest on random rules and packets, for every call
// that takes packets.
package soft
