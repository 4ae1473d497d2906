// Package soft is the user-space engine: it runs a rule.Program over packets, keeps states, and needs no kernel. It guards the
// tunnel, judges captures, and answers why a packet got its verdict.
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
//	if v := w.Judge(&in, packet); !v.Pass {
//		... // v.Reason and v.Rule say why, v.Answer what to send back
//	}
//
// # Workers
//
// An engine has a fixed number of Workers, one for each goroutine that judges packets. A worker owns a shard of the states,
// so that workers share nothing but counters that are told in batches. JudgeBatch takes the shard once for many packets and is the way
// to use the engine; Judge takes it for each packet. Packets of one conversation should reach the same worker, in both
// directions: Steer says which. If they do not, verdicts are the same and only cost more.
//
// # Time
//
// The engine reads no clock. Every packet comes with its time, and Tick, called some hundred times in a second, gives the memory of
// expired states back in small pieces and hands out keepalive probes. Deadlines hold whether Tick is called or not.
//
// # Memory
//
// All tables are made by New and do not grow: about 150 bytes for each of MaxStates. When they are full, states that are
// over make room, half-open ones drive each other out, and an established one is never ended for another.
//
// docs/design/0003-judgement.md is the specification of every verdict.
package soft
