package soft

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule/op"
)

// maxRates is how many buckets there are, as many as in the kernel engine.
const maxRates = 1 << 16

// rateTries is how many places are tried for a new bucket.
const rateTries = 16

// rateKey is what a bucket counts: packets of a rule with limit-rate, or of a pipe. That with no
// more than its owner is the bucket of all packets, or of those without a place.
type rateKey struct {
	src, dst       [16]byte
	pipe           uint64 // program.Pipe.Key, 0 for a rule
	ports          uint32
	rule           uint32 // its id
	proto, version uint8
}

// shared returns the key of the bucket that packets without a place share.
func (k *rateKey) shared() rateKey { return rateKey{rule: k.rule, pipe: k.pipe} }

// charge is what a packet takes of a bucket, which takes depth to be full again.
type charge struct {
	cost, depth time.Duration
	masked      bool            // there are several buckets
	empty       firewall.Reason // a bucket holds too little
}

// rates are the buckets of rules with limit-rate and of pipes, for all shards: only packets that
// reach such a rule come here. A bucket that is full again is as good as a new one, so its place
// may be given away. Without such a place the packet is counted in the shared bucket: a flood opens
// no rule, and no source loses its bucket.
type rates struct {
	mu    sync.Mutex
	most  int
	index map[rateKey]int
	all   []rateBucket
	hand  int                     // the clock hand: where the search for a place continues
	whole map[rateKey]flow.Bucket // of all packets of an owner, or of those without a place
	full  uint64                  // packets without a place
}

type rateBucket struct {
	key rateKey
	flow.Bucket
}

func newRates() *rates {
	return &rates{most: maxRates, index: map[rateKey]int{}, whole: map[rateKey]flow.Bucket{}}
}

// take takes what a packet costs. It returns the reason if it is not there.
func (rs *rates) take(k rateKey, c charge, now time.Duration) firewall.Reason {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if c.masked {
		if b := rs.bucketLocked(k, now); b != nil {
			after, ok := b.TakeTime(c.cost, c.depth, now)
			b.Bucket = after
			return rateReason(ok, c.empty)
		}
		rs.full++
		c.empty = firewall.ReasonRatesFull
	}
	shared := k.shared()
	after, ok := rs.whole[shared].TakeTime(c.cost, c.depth, now)
	rs.whole[shared] = after
	return rateReason(ok, c.empty)
}

func rateReason(ok bool, otherwise firewall.Reason) firewall.Reason {
	if ok {
		return firewall.ReasonRule
	}
	return otherwise
}

// bucketLocked returns the bucket of a key, a new one if it has none, or nil if there is no place.
func (rs *rates) bucketLocked(k rateKey, now time.Duration) *rateBucket {
	if i, ok := rs.index[k]; ok {
		return &rs.all[i]
	}
	at := len(rs.all)
	if at < rs.most {
		rs.all = append(rs.all, rateBucket{})
	} else if at = rs.unusedLocked(now); at >= 0 {
		delete(rs.index, rs.all[at].key)
	} else {
		return nil
	}
	rs.index[k], rs.all[at] = at, rateBucket{key: k}
	return &rs.all[at]
}

// unusedLocked returns a place whose bucket is full, -1 if the next ones are not.
func (rs *rates) unusedLocked(now time.Duration) int {
	for range min(rateTries, len(rs.all)) {
		i := rs.hand
		rs.hand = (rs.hand + 1) % len(rs.all)
		if rs.all[i].Full(now) {
			return i
		}
	}
	return -1
}

// renumber gives the buckets the new numbers of their rules. It forgets those of rules that have
// none (number returns false for them), and of pipes that are not among those given.
func (rs *rates) renumber(pipes []program.Pipe, number func(rule uint32) (uint32, bool)) {
	known := make(map[uint64]bool, len(pipes))
	for i := range pipes {
		known[pipes[i].Key] = true
	}
	owned := func(k *rateKey) (ok bool) {
		if k.pipe != 0 {
			return known[k.pipe]
		}
		k.rule, ok = number(k.rule)
		return ok
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	clear(rs.index)
	kept := rs.all[:0]
	for _, b := range rs.all {
		if owned(&b.key) {
			rs.index[b.key] = len(kept)
			kept = append(kept, b)
		}
	}
	rs.all, rs.hand = kept, 0
	whole := make(map[rateKey]flow.Bucket, len(rs.whole))
	for k, b := range rs.whole {
		if owned(&k) {
			whole[k] = b
		}
	}
	rs.whole = whole
}

// RatesFull returns how many packets found no place for a bucket of their own and were counted in
// that of their rule.
func (e *Engine) RatesFull() uint64 {
	e.rates.mu.Lock()
	defer e.rates.mu.Unlock()
	return e.rates.full
}

// takeRate takes a token of a rule with limit-rate. It returns the reason if there is none.
func (j *job) takeRate(slot int, code *program.Rule) firewall.Reason {
	k := j.rateKey(code)
	k.rule = j.cfg.ids[slot]
	return j.takeOf(k, charge{cost: code.Every, depth: time.Duration(code.Burst) * code.Every,
		masked: code.RateMask != 0, empty: firewall.ReasonRate})
}

// takePipe takes the bytes of the packet of the rule's pipe. It returns the reason if it carries
// too little.
func (j *job) takePipe(code *program.Rule) firewall.Reason {
	x := &j.cfg.prog.Pipes[code.Pipe-1]
	return j.takeOf(j.pipeKey(x), charge{cost: x.Cost(j.wireBytes()), depth: x.Depth,
		masked: x.Masked(), empty: firewall.ReasonPipe})
}

// wireBytes returns how many bytes the packet has when it is cut into its segments.
func (j *job) wireBytes() uint32 {
	n, head, segment := j.p.Len(), uint32(j.p.PayloadOffset()), uint32(0)
	if len(j.in.Segments) > 0 {
		segment = uint32(j.in.Segments[0])
	}
	if segment == 0 || n <= head+segment {
		return n
	}
	data := n - head
	return data + (data+segment-1)/segment*head
}

// takeOf takes what a packet costs of a bucket. In a dry run the bucket stays as it is, and a
// question of policy is about a packet that is not too much.
func (j *job) takeOf(k rateKey, c charge) firewall.Reason {
	rs := j.sh.engine.rates
	switch {
	case j.dry == nil:
		return rs.take(k, c, j.now)
	case !j.dry.stateful:
		return firewall.ReasonRule
	}
	b, taken := j.dry.rates[k]
	if !taken {
		b = rs.bucket(k, c.masked)
	}
	after, ok := b.TakeTime(c.cost, c.depth, j.now)
	if j.dry.rates == nil {
		j.dry.rates = map[rateKey]flow.Bucket{}
	}
	j.dry.rates[k] = after
	return rateReason(ok, c.empty)
}

// bucket returns the bucket of a key as it is, a full one if it has none.
func (rs *rates) bucket(k rateKey, masked bool) flow.Bucket {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !masked {
		return rs.whole[k]
	}
	if i, ok := rs.index[k]; ok {
		return rs.all[i].Bucket
	}
	return 0
}

// pipeKey returns the parts of the packet's tuple that tell the buckets of a pipe apart.
func (j *job) pipeKey(x *program.Pipe) rateKey {
	p := j.p
	k := rateKey{pipe: x.Key}
	if !x.Masked() {
		return k
	}
	k.version, k.proto = p.Version, uint8(p.Proto)&x.Proto
	if p.HasPorts() {
		k.ports = p.Ports & x.Ports
	}
	for _, end := range [...]struct {
		to, from *[16]byte
		mask4    uint32
		bits6    uint8
	}{{&k.src, &p.SrcIP, x.Src, x.Src6}, {&k.dst, &p.DstIP, x.Dst, x.Dst6}} {
		if p.Version == 4 {
			ip := binary.BigEndian.Uint32(end.from[12:]) & end.mask4
			binary.BigEndian.PutUint32(end.to[12:], ip)
			continue
		}
		prefix := netip.PrefixFrom(netip.AddrFrom16(*end.from), int(end.bits6))
		*end.to = prefix.Masked().Addr().As16()
	}
	return k
}

// rateKey returns the parts of the packet's tuple that the rule counts by.
func (j *job) rateKey(code *program.Rule) (k rateKey) {
	p := j.p
	if code.RateMask&op.LimitSrcAddr != 0 {
		k.src = sourceOf(&p.SrcIP, j.in.Hook.Link())
	}
	if code.RateMask&op.LimitDstAddr != 0 {
		k.dst = p.DstIP
	}
	if !p.HasPorts() {
		return k
	}
	if code.RateMask&op.LimitSrcPort != 0 {
		k.ports |= p.Ports &^ 0xffff
	}
	if code.RateMask&op.LimitDstPort != 0 {
		k.ports |= p.Ports & 0xffff
	}
	return k
}
