package soft

import (
	"sync"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// fragTable records the verdicts of first fragments. Those that have passed and those that were
// refused have sets of their own, so refused packets evict no record of a datagram that passes. A
// set holds four; when it is full, the oldest is evicted. Fragments are rare, so all workers share
// the table under a lock.
type fragTable struct {
	mu              sync.Mutex
	passed, refused [fragSets]fragSet
	seed            [4]uint64
}

type fragSet [4]fragRecord

// fragSets times four datagrams of each kind are recorded for fragLife.
const (
	fragSets = 1024
	fragLife = 30e9 // ns
)

// fragKey names a datagram.
type fragKey struct {
	src, dst [16]byte
	id       uint32
	proto    packet.Proto
	hook     firewall.Hook
	version  uint8
}

// fragRecord is the evaluation of a first fragment.
type fragRecord struct {
	key      fragKey
	time     time.Duration
	gen      uint64
	end      uint32 // where the first fragment ends
	verdict  firewall.Verdict
	used     bool
	poisoned bool
}

func (j *job) fragKey() fragKey {
	p := j.p
	k := fragKey{src: p.SrcIP, dst: p.DstIP, id: p.IPID, hook: j.in.Hook, version: p.Version}
	if p.Version == 4 {
		k.proto = p.Proto
	}
	return k
}

// in returns where a datagram is recorded in the sets of its kind.
func (t *fragTable) in(k *fragKey) int {
	srcHi, srcLo := halves(&k.src)
	dstHi, dstLo := halves(&k.dst)
	h := (srcHi^dstLo^t.seed[0])*0x9e3779b97f4a7c15 ^ (dstHi^srcLo^t.seed[1])*0xc2b2ae3d27d4eb4f ^
		uint64(k.id)*t.seed[2]
	h ^= h >> 29
	h *= t.seed[3] | 1
	return int(h >> 54 % fragSets)
}

// of returns the record of a datagram, nil if there is none.
func (s *fragSet) of(k *fragKey) *fragRecord {
	for i := range s {
		if s[i].used && s[i].key == *k {
			return &s[i]
		}
	}
	return nil
}

// place returns where to record a datagram that is not in the set.
func (s *fragSet) place() *fragRecord {
	at := &s[0]
	for i := range s {
		if n := &s[i]; !n.used || at.used && n.time < at.time {
			at = n
		}
	}
	return at
}

// record remembers the verdict of a first fragment, in place of that on an earlier datagram with
// its identification.
func (t *fragTable) record(j *job, v firewall.Verdict) {
	k := j.fragKey()
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.in(&k)
	set, other := &t.refused[in], &t.passed[in]
	if v.Pass {
		set, other = other, set
	}
	if n := other.of(&k); n != nil {
		*n = fragRecord{}
	}
	at := set.of(&k)
	if at == nil {
		at = set.place()
	}
	*at = fragRecord{key: k, time: j.now, gen: j.cfg.gen, end: flow.FragmentEnd(j.p, j.b),
		verdict: v, used: true}
}

// find returns the record of a later fragment's datagram. A fragment that overlaps the first
// poisons it.
func (t *fragTable) find(j *job) (fragRecord, bool) {
	k := j.fragKey()
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.in(&k)
	n := t.passed[in].of(&k)
	if n == nil {
		n = t.refused[in].of(&k)
	}
	if n == nil || n.gen != j.cfg.gen || j.now-n.time > fragLife {
		return fragRecord{}, false
	}
	record := *n
	record.poisoned = record.poisoned || uint32(j.p.FragOff()) < n.end
	if j.dry == nil {
		n.poisoned = record.poisoned
	}
	return record, true
}

// laterFragment is section 6 of the page.
func (j *job) laterFragment() firewall.Verdict {
	n, ok := j.sh.engine.frags.find(j)
	switch {
	case !ok:
		return j.walk()
	case n.poisoned:
		return firewall.Verdict{Reason: firewall.ReasonFragOverlap}
	}
	if code := &j.cfg.rules[n.verdict.Slot]; n.verdict.Pass && n.verdict.Rule != 0 &&
		code.Pipe != 0 {
		if r := j.takePipe(code); r != firewall.ReasonRule {
			return j.drop(int(n.verdict.Slot), r)
		}
	}
	if n.verdict.Rule != 0 && j.dry == nil {
		j.sh.count(int(n.verdict.Slot), j.p.Len(), j.now)
	}
	return firewall.Verdict{Pass: n.verdict.Pass, Reason: firewall.ReasonFragFirst,
		Rule: n.verdict.Rule, Slot: n.verdict.Slot}
}
