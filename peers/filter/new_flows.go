package main

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// newFlowsTable evaluates packets each of which begins a flow, while the flows of some
// hundred milliseconds ago expire.
func newFlowsTable(rounds int, slice time.Duration) error {
	fmt.Print("### Every packet begins a flow, expiry running (a simulated second for 3 " +
		"million, half-open states live 20 ms)\n\n" +
		"| packets | space for half-open | established | weir ns | million states per second | " +
		"peer ns | allocs weir / peer |\n" +
		"| --- | --- | --- | --- | --- | --- | --- |\n")
	p, err := newPeer(benchRules(), benchLocal...)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name        string
		proto       packet.Proto
		halfOpen    int
		established int
	}{
		{"UDP out", packet.ProtoUDP, 1 << 16, 0}, {"TCP SYN out", packet.ProtoTCP, 1 << 16, 0},
		{"UDP out", packet.ProtoUDP, 1 << 16, 1_000_000},
		{"UDP out", packet.ProtoUDP, 1 << 20, 1_000_000},
	} {
		o := firewall.DefaultOptions()
		o.MaxStates, o.MaxHalfOpen = max(1<<18, c.established+c.halfOpen), c.halfOpen
		o.MaxPerSource = 2 * o.MaxHalfOpen
		o.Timeouts.UDP, o.Timeouts.Syn = 20*time.Millisecond, 20*time.Millisecond
		o.Timeouts.UDPReply = time.Hour
		e, err := soft.New(soft.Options{Options: o})
		if err != nil {
			return err
		}
		if err := loadRules(e, weirRules); err != nil {
			return err
		}
		w := e.Worker(0)
		if err := fill(w, c.established); err != nil {
			return err
		}
		pkts := make([][]byte, batch)
		for i := range pkts {
			if pkts[i], err = benchPacket(c.proto, false); err != nil {
				return err
			}
		}
		k := uint32(0)
		next := func(n int) [][]byte {
			for _, b := range pkts[:n] {
				k++
				// a far end that was not there before
				binary.BigEndian.PutUint32(b[16:], k*2654435761)
				binary.BigEndian.PutUint16(b[22:], uint16(k>>16))
			}
			return pkts[:n]
		}
		in := firewall.Input{Hook: firewall.Hook{Dir: firewall.Out, Xmit: 1}, Now: time.Second}
		out := make([]firewall.Verdict, batch)
		ticked := in.Now
		made, evaluated := 0, 0
		weir := func(n int) {
			for ; n > 0; n -= batch {
				m := min(n, batch)
				in.Now += time.Duration(m) * time.Second / 3_000_000
				w.EvaluateBatch(&in, next(m), out)
				for i := range m {
					evaluated++
					if out[i].State == firewall.StateNew {
						made++
					}
				}
				// ten times as often as needed: all of the table in a second
				if in.Now-ticked >= time.Millisecond {
					ticked = in.Now
					w.Tick(in.Now, nil)
				}
			}
		}
		weir(3_000_000) // until every page of the table has been touched
		r := compare(rounds, 10*slice, contender{"weir", weir}, contender{"peer", func(n int) {
			for ; n > 0; n -= batch {
				for _, b := range next(min(n, batch)) {
					p.out(b)
				}
			}
		}})
		theirs := "-"
		if c.proto == packet.ProtoUDP {
			theirs = fmt.Sprintf("%.1f", r[1].min)
		}
		fmt.Printf("| %s | %d | %d | %.1f | %.2f | %s | %.0f / %.0f |\n", c.name, c.halfOpen,
			c.established, r[0].min, 1e3/r[0].min, theirs, r[0].allocs, r[1].allocs)
		if float64(made) < 0.999*float64(evaluated) {
			return fmt.Errorf("%s: %d states of %d packets", c.name, made, evaluated)
		}
		if c.established == 0 {
			checkTarget(1e3/r[0].min, 3)
		}
		if c.halfOpen > 1<<16 {
			if err := longest(w, in.Now, next); err != nil {
				return err
			}
		}
	}
	fmt.Print("\nBar: 3 million states per second in the first two rows. With a million states " +
		"every new\none waits for main memory. The peer keeps 512 flows of UDP and none of " +
		"TCP.\n")
	return nil
}

// loadRules loads a rule file.
func loadRules(e *soft.Engine, text string) error {
	rs, err := rule.ParseFile("bench", text, nil)
	if err != nil {
		return err
	}
	p, err := rule.Compile(rs, rule.CompileOptions{Strict: true})
	if err != nil {
		return err
	}
	return e.Load(p)
}

// fill makes n flows of UDP that have been answered, whose beginner has sent since then: states
// that are not half-open.
func fill(w *soft.Worker, n int) error {
	out, err := newFlows(n, true)
	if err != nil {
		return err
	}
	in, err := newFlows(n, false)
	if err != nil {
		return err
	}
	goes := firewall.Input{Hook: firewall.Hook{Dir: firewall.Out, Xmit: 1}, Now: time.Second}
	comes := firewall.Input{Hook: firewall.Hook{Dir: firewall.In, Recv: 1}, Now: time.Second}
	for k := range uint64(n) {
		out.set(0, k)
		in.set(0, k)
		w.Evaluate(&goes, out.pkts[0])
		if v := w.Evaluate(&comes, in.pkts[0]); v.State != firewall.StateHit {
			return fmt.Errorf("flow %d is not remembered: %+v", k, v)
		}
		w.Evaluate(&goes, out.pkts[0])
	}
	return nil
}

// longest measures single ticks and single packets with a million states resident. What runs on the
// machine besides hits different ones every time, so each place in the sequence counts with its
// best of five.
func longest(w *soft.Worker, now time.Duration, next func(int) [][]byte) error {
	const ticks, packets, again = 1024, 50_000, 5
	best := make([]time.Duration, ticks)
	for round := range again {
		for i := range best {
			start := time.Now()
			w.Tick(now, nil)
			if d := time.Since(start); round == 0 || d < best[i] {
				best[i] = d
			}
		}
	}
	tick := time.Duration(0)
	for _, d := range best {
		tick = max(tick, d)
	}
	in := firewall.Input{Hook: firewall.Hook{Dir: firewall.Out, Xmit: 1}, Now: now}
	evaluated := make([]time.Duration, packets)
	for round := range again {
		for i := range evaluated {
			pkt := next(1)[0]
			start := time.Now()
			w.Evaluate(&in, pkt)
			if d := time.Since(start); round == 0 || d < evaluated[i] {
				evaluated[i] = d
			}
		}
	}
	one := time.Duration(0)
	for _, d := range evaluated {
		one = max(one, d)
	}
	fmt.Printf("| longest single tick, longest single packet | 1048576 | 1000000 | %d, %d | | | "+
		"|\n", tick.Nanoseconds(), one.Nanoseconds())
	return nil
}
