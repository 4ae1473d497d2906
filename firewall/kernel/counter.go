package kernel

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
)

// read returns the counter of a rule index, summed over the CPUs, without what was taken off it.
func (e *Engine) read(index uint32) (weirCounter, error) {
	var each []weirCounter
	var sum weirCounter
	if err := e.objects.Counters.Lookup(index, &each); err != nil {
		return sum, fmt.Errorf("read counter %d: %w", index, err)
	}
	for _, c := range each {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
		sum.Last = max(sum.Last, c.Last)
	}
	return sum, nil
}

// resetCountersLocked makes the counters of ids begin at 0, by noting what they show.
func (e *Engine) resetCountersLocked(ids []uint32) error {
	const few = 100
	if len(ids) > few {
		return e.resetManyLocked(ids)
	}
	for _, id := range ids {
		index := id & 0xffff
		sum, err := e.read(index)
		if err != nil {
			return err
		}
		if err := e.objects.Bases.Put(index, sum); err != nil {
			return fmt.Errorf("reset counter %d: %w", index, err)
		}
		if err := e.objects.Logged.Put(index, uint32(0)); err != nil {
			return fmt.Errorf("reset counter %d: %w", index, err)
		}
	}
	return nil
}

// resetManyLocked is resetCountersLocked with some system calls instead of three for each id.
func (e *Engine) resetManyLocked(ids []uint32) error {
	sums, err := e.readAll()
	if err != nil {
		return err
	}
	keys, bases := make([]uint32, len(ids)), make([]weirCounter, len(ids))
	for i, id := range ids {
		keys[i] = id & 0xffff
		bases[i] = sums[keys[i]]
	}
	if _, err := e.objects.Bases.BatchUpdate(keys, bases, nil); err != nil {
		return fmt.Errorf("reset %d counters: %w", len(ids), err)
	}
	if _, err := e.objects.Logged.BatchUpdate(keys, make([]uint32, len(ids)), nil); err != nil {
		return fmt.Errorf("reset %d counters: %w", len(ids), err)
	}
	return nil
}

// readAll returns what read does for all rule indexes.
func (e *Engine) readAll() ([]weirCounter, error) {
	m := e.objects.Counters
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	const batch = 1024
	keys, each := make([]uint32, batch), make([]weirCounter, batch*cpus)
	sums := make([]weirCounter, maxIDs)
	var cursor ebpf.MapBatchCursor
	for done := 0; done < maxIDs; {
		n, err := m.BatchLookup(&cursor, keys, each, nil)
		if n == 0 || err != nil && (!errors.Is(err, ebpf.ErrKeyNotExist) || done+n < maxIDs) {
			return nil, errors.Join(fmt.Errorf("read the counters from %d on", done), err)
		}
		for i, key := range keys[:n] {
			sum := &sums[key]
			for _, c := range each[i*cpus : (i+1)*cpus] {
				sum.Packets += c.Packets
				sum.Bytes += c.Bytes
				sum.Last = max(sum.Last, c.Last)
			}
		}
		done += n
	}
	return sums, nil
}

// countersAtOnce is how many counters are read while the lock is held: some 100 microseconds. Who
// asks for them every few seconds does not hold up changes of 10,000 rules.
const countersAtOnce = 64

// Rules returns the counters of the rules in force, by slot. They are of one Program.
func (e *Engine) Rules() ([]firewall.RuleCounter, error) {
	var rules []weirCode
	var out []firewall.RuleCounter
	for begun := false; !begun || len(out) < len(rules); begun = true {
		var err error
		if rules, out, err = e.moreCounters(rules, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// moreCounters reads some more counters of rules. It begins again when other rules are in force.
func (e *Engine) moreCounters(rules []weirCode, out []firewall.RuleCounter) ([]weirCode,
	[]firewall.RuleCounter, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.rules) != len(rules) || len(rules) > 0 && &e.rules[0] != &rules[0] {
		rules, out = e.rules, make([]firewall.RuleCounter, 0, len(e.rules))
	}
	for range min(countersAtOnce, len(rules)-len(out)) {
		c, err := e.ruleCounter(&rules[len(out)])
		if err != nil {
			return nil, nil, err
		}
		out = append(out, c)
	}
	return rules, out, nil
}

// ruleCounter reads the counter of a rule in force.
func (e *Engine) ruleCounter(r *weirCode) (c firewall.RuleCounter, err error) {
	index := r.Id & 0xffff
	sum, err := e.read(index)
	if err != nil {
		return c, err
	}
	var base weirCounter
	if err := e.objects.Bases.Lookup(index, &base); err != nil {
		return c, fmt.Errorf("read counter %d: %w", index, err)
	}
	c = firewall.RuleCounter{Key: r.Key, Number: r.Number, Packets: sum.Packets - base.Packets,
		Bytes: sum.Bytes - base.Bytes}
	if c.Packets > 0 {
		c.Last = time.Duration(sum.Last)
	}
	return c, nil
}

// Zero sets the counters of the rules with a number to 0, of all rules for number 0.
func (e *Engine) Zero(number uint16) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ids []uint32
	for i := range e.rules {
		if number == 0 || e.rules[i].Number == number {
			ids = append(ids, e.rules[i].Id)
		}
	}
	return e.resetCountersLocked(ids)
}

// Decisions returns how many packets were evaluated, by verdict.
func (e *Engine) Decisions() (map[firewall.Decision]firewall.Count, error) {
	each, err := e.cpus()
	if err != nil {
		return nil, err
	}
	all := map[firewall.Decision]firewall.Count{}
	for i := range each {
		for k, n := range each[i].Decided {
			if n.Packets > 0 {
				d := firewall.DecisionAt(k)
				sum := all[d]
				sum.Add(firewall.Count{Packets: n.Packets, Bytes: n.Bytes})
				all[d] = sum
			}
		}
	}
	return all, nil
}

// cpus reads what each CPU has counted, for packets and, once more, for calls.
func (e *Engine) cpus() ([]weirCpu, error) {
	var packets, calls []weirCpu
	for m, each := range map[*ebpf.Map]*[]weirCpu{e.objects.Cpus: &packets,
		e.objects.CallCpus: &calls} {
		if err := m.Lookup(uint32(0), each); err != nil {
			return nil, fmt.Errorf("read the counters of the CPUs: %w", err)
		}
	}
	return append(packets, calls...), nil
}
