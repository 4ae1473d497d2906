package soft

import (
	"math/bits"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// Worker evaluates packets for one goroutine: one queue of a device, one CPU. It owns a shard of
// the states; packets of its own flows touch nothing that workers share. A packet of another
// worker's flow gets the same verdict, only later: the worker borrows the other shard for it.
// Engine.Steer returns the right worker.
type Worker struct {
	engine  *Engine
	shard   *shard
	holding bool // Hold was called
	// memory without pointers, aligned to a cache line: each packet is one line
	ps      *[group]packet.Packet
	hashes  [group]uint64  // of the flows of ps, where prefetch has computed them
	found   [group]*entry  // what prefetch takes for the states of ps, or nil
	in      firewall.Input // of a packet of a batch
	job     job
	touched uint64 // keeps the compiler from removing the reads of prefetch
}

// Hold keeps the worker's shard until Release, so that Evaluate need not take it for every packet.
// Meanwhile other users of the shard wait: workers with a packet of its flows, and calls such as
// Engine.States.
func (w *Worker) Hold() {
	if !w.holding {
		w.shard.hold()
		w.holding = true
	}
}

// Release ends Hold.
func (w *Worker) Release() {
	if w.holding {
		w.holding = false
		w.shard.release()
	}
}

// Evaluate returns the verdict of one IP packet. It keeps no reference to the packet and does not
// allocate.
func (w *Worker) Evaluate(in *firewall.Input, pkt []byte) (v firewall.Verdict) {
	s, p := w.shard, &w.ps[0]
	p.Decode(pkt)
	if !w.holding {
		s.hold()
	}
	if r, got := s.fastPath(p, in, 0, nil); r != nil {
		v = *r
	} else {
		w.left(in, p, pkt, got, &v)
	}
	if !w.holding {
		s.release()
	}
	return v
}

// left evaluates a packet that the fast path has left.
func (w *Worker) left(in *firewall.Input, p *packet.Packet, pkt []byte, got fastResult,
	v *firewall.Verdict) {
	if got != noState || !w.fastCreate(in, p, pkt, v) {
		*v = w.slowPath(in, p, pkt, got)
	}
}

// EvaluateBatch evaluates packets that came together: same hook, time and tags. It writes the
// verdict of pkts[i] to out[i]; out must be at least as long as pkts. Packet i has the random word
// in.Random + i*RandomStep. A batch takes the worker's shard once.
func (w *Worker) EvaluateBatch(in *firewall.Input, pkts [][]byte, out []firewall.Verdict) {
	if !w.holding {
		w.shard.hold()
	}
	out = out[:len(pkts)]
	for from := 0; from < len(pkts); from += group {
		to := min(from+group, len(pkts))
		prefetch := w.shard.established.used+w.shard.halfOpen.used > w.engine.prefetchStates
		if prefetch {
			w.prefetch(pkts[from:to])
		}
		for i := from; i < to; i++ {
			p := &w.ps[i-from]
			h, e := uint64(0), (*entry)(nil)
			if prefetch {
				h, e = w.hashes[i-from], w.found[i-from]
			} else {
				p.Decode(pkts[i])
			}
			v, got := w.shard.fastPath(p, in, h, e)
			if v != nil {
				out[i] = *v
				continue
			}
			w.in = *in
			w.in.Random += uint32(i) * RandomStep
			if w.in.Segments = nil; i < len(in.Segments) {
				w.in.Segments = in.Segments[i : i+1]
			}
			w.left(&w.in, p, pkts[i], got, &out[i])
		}
	}
	if !w.holding {
		w.shard.release()
	}
}

// A batch is evaluated in groups. With more than prefetchStates states, which no longer fit the
// CPU's caches, the states of a whole group are loaded before its first packet is evaluated. So the
// waits for memory overlap.
const (
	group          = 16
	prefetchStates = 4096
)

// prefetch decodes a group of packets and touches their states, or the entries that new states will
// get. What it finds is a guess: a tag may be another flow's, and a packet of the group may end or
// move the state of a later one. The loops that touch entries do nothing else: a CPU waits for more
// of them at once, the fewer instructions are between the reads.
func (w *Worker) prefetch(pkts [][]byte) {
	var hashes [group]uint64
	s := w.shard
	for i, pkt := range pkts {
		p := &w.ps[i]
		p.Decode(pkt)
		h := hashEnds(&p.SrcIP, &p.DstIP, p.Ports, p.Proto, &s.established.seed)
		hashes[i], w.hashes[i] = h, h
	}
	n := 0
	for i, h := range hashes[:len(pkts)] {
		w.found[i] = s.established.likely(h)
	}
	for i, e := range w.found[:len(pkts)] {
		if e != nil {
			w.touched ^= e.id ^ e.sides[0].bytes
		} else {
			hashes[n] = hashes[i]
			n++
		}
	}
	rest := hashes[:n]
	n = 0
	for _, h := range rest {
		if e := s.halfOpen.likely(h); e != nil {
			w.touched ^= e.id ^ e.sides[0].bytes
		} else {
			a, b, _ := s.halfOpen.places(h)
			w.touched ^= uint64(s.halfOpen.visits[a*ways] ^ s.halfOpen.visits[b*ways])
			rest[n] = h
			n++
		}
	}
	var refs [group]ref
	for i, h := range rest[:n] {
		r := s.halfOpen.free(h)
		if r == noRef {
			r = s.halfOpen.soonest(h)
		}
		refs[i] = r
	}
	for _, r := range refs[:n] {
		e := &s.halfOpen.entries[r]
		w.touched ^= e.id ^ e.sides[0].bytes
	}
}

// likely returns the first entry whose tag is that of the hash, or nil.
func (t *table) likely(h uint64) *entry {
	a, b, tag := t.places(h)
	m, other := match(t.tags[a], tag), match(t.tags[b], tag)
	if m == 0 { // as likely as not, so without a branch
		a, m = b, other
	}
	if m == 0 {
		return nil
	}
	return &t.entries[a*ways+bits.TrailingZeros64(m)>>3]
}

// RandomStep is the difference between the random words of two successive packets in a batch.
const RandomStep = 0x9e3779b9

// slowPath evaluates the decoded packet with the worker's shard held. got is the result of the fast
// path.
func (w *Worker) slowPath(in *firewall.Input, p *packet.Packet, pkt []byte,
	got fastResult) firewall.Verdict {
	e, j := w.engine, &w.job
	j.in, j.p, j.b, j.now = in, p, pkt, in.Now
	if got == noState { // in this shard, and not an ICMP error
		j.reset()
		j.key, j.dir, j.hasKey = flow.KeyOf(p, pkt, in.Hook.Link())
		j.hash, j.isErr = w.shard.hash, false
		c := w.shard.cfg
		id := c.rules[0].Flow
		j.lookedUp[id>>6] |= 1 << (id & 63)
		if c.stateless { // fastStateless has found the first rule that matches
			j.matched = w.shard.lastRule.slot
		}
		return j.run(w.shard)
	}
	j.prepare(e)
	if w.shard.many && j.hasKey {
		if at := e.shardOf(j.hash); at != w.shard.index {
			return w.borrow(e.shards[at])
		}
	}
	return j.run(w.shard)
}

// borrow evaluates the job in another worker's shard. It releases its own shard meanwhile, so that
// two workers that borrow from each other cannot deadlock.
func (w *Worker) borrow(s *shard) firewall.Verdict {
	w.shard.release()
	s.hold()
	v := w.job.run(s)
	s.release()
	w.shard.hold()
	return v
}

// reset clears everything that was found about the previous packet.
func (j *job) reset() {
	j.classified, j.hasSeg, j.ntags, j.use = false, false, 0, firewall.StateNone
	j.lookedUp, j.have = [4]uint64{}, [4]uint64{}
	j.lookFrom, j.look = 1, 0
	j.matched = -1
}

// prepare initializes a job for its packet.
func (j *job) prepare(e *Engine) {
	j.reset()
	j.isErr = false
	p := j.p
	if p.Proto <= packet.ProtoICMPv6 && p.ICMPError() {
		var inner packet.Packet
		j.isErr = true
		j.key, j.dir, inner, j.hasKey = flow.QuotedKey(p, j.b, j.in.Hook.Link())
		j.dir ^= 1
		j.quoted = inner.Seq
	} else {
		j.key, j.dir, j.hasKey = flow.KeyOf(p, j.b, j.in.Hook.Link())
	}
	if j.hasKey {
		j.hash = hash(&j.key, &e.seed)
	}
}

// run evaluates the job in a shard that the caller holds, counts the verdict, and emits the event
// of a drop.
func (j *job) run(s *shard) firewall.Verdict {
	j.sh, j.cfg = s, s.cfg
	v := j.evaluate()
	s.decide(j.in.Hook.Dir, &v, j.p.Len())
	if !v.Pass && s.engine.onEvent != nil {
		j.dropped(v)
	}
	return v
}

// shardOf returns the number of the shard that a flow belongs to.
func (e *Engine) shardOf(h uint64) int {
	return int(h * 0x9e3779b97f4a7c15 >> 32 * uint64(len(e.shards)) >> 32)
}

// Steer returns the number of the worker that owns a packet's flow, or 0 for a packet without a
// flow. Another worker gives the same verdict at a higher cost. A packet with a link-local end may
// go to any worker.
func (e *Engine) Steer(pkt []byte) int {
	var p packet.Packet
	p.Decode(pkt)
	k, _, ok := flow.KeyOf(&p, pkt, 0)
	if !ok {
		return 0
	}
	return e.shardOf(hash(&k, &e.seed))
}
