package soft

import (
	"sync"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
)

// fragTable remembers what was decided about the first fragments of datagrams. It has room for a
// fixed number of them, four to a set, oldest out. Fragments are rare: all workers share it, under
// a lock.
type fragTable struct {
	mu   sync.Mutex
	sets [fragSets][4]fragNote
	seed [4]uint64
}

// fragSets times four datagrams are remembered for fragLife.
const (
	fragSets = 1024
	fragLife = 30e9 // ns
)

// fragKey names a datagram.
type fragKey struct {
	src, dst [16]byte
	id       uint32
	proto    uint8
	hook     firewall.Hook
	version  uint8
}

// fragNote is the judgement of a first fragment.
type fragNote struct {
	key      fragKey
	time     int64 // ns
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

func (t *fragTable) set(k *fragKey) *[4]fragNote {
	srcHi, srcLo := halves(&k.src)
	dstHi, dstLo := halves(&k.dst)
	h := (srcHi^dstLo^t.seed[0])*0x9e3779b97f4a7c15 ^ (dstHi^srcLo^t.seed[1])*0xc2b2ae3d27d4eb4f ^ uint64(k.id)*t.seed[2]
	h ^= h >> 29
	h *= t.seed[3] | 1
	return &t.sets[h>>54%fragSets]
}

// note remembers the verdict of a first fragment.
func (t *fragTable) note(j *job, v firewall.Verdict) {
	k := j.fragKey()
	t.mu.Lock()
	defer t.mu.Unlock()
	set := t.set(&k)
	at := &set[0]
	for i := range set {
		n := &set[i]
		if n.used && n.key == k {
			at = n
			break
		}
		if !n.used || at.used && n.time < at.time {
			at = n
		}
	}
	*at = fragNote{key: k, time: j.now, gen: j.cfg.gen, end: flow.FragmentEnd(j.p, j.b), verdict: v,
		used: true}
}

// find returns the note of a later fragment's datagram. A fragment that overlaps the first poisons
// it.
func (t *fragTable) find(j *job) (fragNote, bool) {
	k := j.fragKey()
	t.mu.Lock()
	defer t.mu.Unlock()
	set := t.set(&k)
	for i := range set {
		n := &set[i]
		if n.used && n.key == k && n.gen == j.cfg.gen && j.now-n.time <= fragLife {
			note := *n
			note.poisoned = note.poisoned || uint32(j.p.FragOff()) < n.end
			if j.dry == nil {
				n.poisoned = note.poisoned
			}
			return note, true
		}
	}
	return fragNote{}, false
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
	if n.verdict.Rule != 0 && j.dry == nil {
		j.sh.count(int(n.verdict.Slot), j.p.Len(), j.now)
	}
	return firewall.Verdict{Pass: n.verdict.Pass, Reason: firewall.ReasonFragFirst,
		Rule: n.verdict.Rule, Slot: n.verdict.Slot}
}
