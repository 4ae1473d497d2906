// Package soft is the user-space engine: it evaluates packets with a program.Program, keeps states,
// and needs no eBPF. Weir uses it to filter the tunnel, to evaluate captures, and to explain the
// verdict of a packet. Other programs can import it: examples/tunfilter filters a TUN device in
// under 60 lines.
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
// owns a shard of the states, so workers share only counters, which they update in batches. Use
// EvaluateBatch for packets that arrive in batches: it locks the shard once for many packets. Hold
// keeps the lock from one Evaluate to the next. Evaluate alone takes the lock for each packet.
//
// Packets of one flow should reach the same worker, in both directions: Steer returns this worker.
// Otherwise the worker locks the shard of the other worker for that packet. The verdict is the
// same, but takes longer.
//
// # Changes
//
// Load, SetTable, AddTable, DeleteTable, SetInterfaces and SetRoutes may be called at any time from
// any goroutine. Workers continue meanwhile. Each packet is evaluated entirely by the old or
// entirely by the new configuration. A rule keeps its states and counters if the new Program has a
// rule with the same number and text. Other states end. DeleteStates deletes selected states.
//
// # Time
//
// The engine reads no clock. The caller passes the time with every packet. Call Tick about a
// hundred times per second for each worker: it frees expired states in small steps. States expire
// on time even if Tick is not called. Tick also returns keepalive probes for idle TCP connections
// near their deadline, and resets for both ends of connections that DeleteStates has deleted. The
// caller sends these packets.
//
// # Memory
//
// New allocates all tables, and they do not grow: about 160 bytes for each of MaxStates, including
// the space for half-open states. If they are full, closed and expired states are evicted first,
// then half-open ones. An established state is never evicted: the new state is refused with a
// reason. A look-up reads at most two sets of eight entries. A secret hash key selects the sets, so
// an attacker cannot make packets collide. Evaluate does not allocate.
//
// # Answers
//
// A verdict may require an answer (rules with reset, reject, unreach). Answer builds it; the caller
// sends it and limits the rate.
//
// # Observing an engine
//
// Rules, Drops and States read counters and states. Options.OnEvent gets an event for every state
// that begins or ends, every drop, and every match of a rule with log; nil costs nothing. Explain
// returns the verdict that a packet would get, with every rule that was tried and why it did not
// match. Check does the same for a flow that has not begun. Neither changes the engine.
//
// # Correctness
//
// docs/design/0003-evaluation.md is the specification of every verdict. Tests compare the engine
// with the slow reference model in firewall/enginetest on random rules and packets, for every call
// that takes packets.
package soft
