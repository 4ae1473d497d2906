// Package soft is the user-space engine: it runs a rule.Program over packets, keeps states, and
// needs no kernel. It guards the tunnel, judges captures, and answers why a packet got its verdict.
// Other programs can import it: examples/tunfilter filters a TUN device in under 60 lines.
//
//	rules, err := rule.ParseFile("rules", text, nil)
//	...
//	program, err := rule.Compile(rules, rule.CompileOptions{Strict: true})
//	...
//	fw, err := soft.New(soft.Options{Options: firewall.DefaultOptions()})
//	...
//	err = fw.Load(program)
//	w := fw.Worker(0)
//	in := firewall.Input{Hook: firewall.Hook{Dir: firewall.In, Recv: 1}, Now: now, Random: rand.Uint32()}
//	if v := w.Evaluate(&in, packet); !v.Pass {
//		... // v.Reason and v.Rule say why, v.Answer what to send back
//	}
//
// Packets begin with the IP header. A new engine passes everything until Load is called.
//
// # Workers
//
// An engine has a fixed number of Workers, one for each goroutine that judges packets. A worker
// owns a shard of the states, so that workers share nothing but counters that are told in batches.
// EvaluateBatch takes the shard once for many packets and is the way to use the engine where
// packets come in batches; Hold keeps the shard from one Judge to the next; Judge alone takes it
// for each packet.
//
// Packets of one conversation should reach the same worker, in both directions: Steer says which.
// If they do not, the worker borrows the other's shard for that packet: verdicts are the same and
// only cost more.
//
// # Changes
//
// Load, SetTable, AddTable, DeleteTable, SetInterfaces and SetRoutes may be called at any time from
// any goroutine. Workers go on meanwhile; each packet is judged wholly by the old or wholly by the
// new. States and counters of a rule live on when a rule of the same number and text is in the new
// Program; other states end. Cut ends states by choice.
//
// # Time
//
// The engine reads no clock. Every packet comes with its time, and Tick, called some hundred times
// in a second for each worker, gives the memory of expired states back in small pieces. Deadlines
// hold whether Tick is called or not. Tick also hands out keepalive probes for idle TCP connections
// near their end, and resets for both ends of those that Cut has ended, as packets that the caller
// sends.
//
// # Memory
//
// All tables are made by New and do not grow: about 160 bytes for each of MaxStates, with the room
// for half-open states. When they are full, states that are over make room, half-open ones drive
// each other out, and an established one is never ended for another: the new one is refused with a
// reason. No packet costs more than two sets of eight entries, whatever an attacker sends, since a
// secret decides which sets those are. Judging does not allocate.
//
// # Answers
//
// A verdict may ask for an answer (rules with reset, reject, unreach). Answer builds it; the caller
// sends it and limits the rate.
//
// # Seeing what happens
//
// Rules, Drops and States read counters and states. Options.OnEvent is told of states that begin
// and end, of drops, and of rules with log; nil costs nothing. Explain says what would become of a
// packet, with every rule that it came to and why that rule did not act; Check asks the same for a
// conversation that has not begun. Neither changes anything.
//
// # Correctness
//
// docs/design/0003-evaluation.md is the specification of every verdict. The engine is held against
// the slow twin in firewall/enginetest on random rules and packets, in every way in which packets
// can be handed to it.
package soft
