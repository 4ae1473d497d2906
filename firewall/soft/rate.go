package soft

import (
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

// rateKey is what a bucket of a rule with limit-rate counts.
type rateKey struct {
	src, dst [16]byte
	ports    uint32
	rule     uint32
}

// rates are the buckets of rules with limit-rate, for all shards: only packets that reach such a
// rule come here. A bucket that is full again is as good as a new one, so its place may be given
// away. Without such a place the packet is counted in the bucket of the rule: a flood opens no
// rule, and no source loses its bucket.
type rates struct {
	mu    sync.Mutex
	most  int
	index map[rateKey]int
	all   []rateBucket
	hand  int                    // the clock hand: where the search for a place continues
	rules map[uint32]flow.Bucket // by rule id: of all packets, or of those without a place
	full  uint64                 // packets without a place
}

type rateBucket struct {
	key rateKey
	flow.Bucket
}

func newRates() *rates {
	return &rates{most: maxRates, index: map[rateKey]int{}, rules: map[uint32]flow.Bucket{}}
}

// take takes a token for a packet. It returns the reason if there is none.
func (rs *rates) take(k rateKey, code *program.Rule, now time.Duration) firewall.Reason {
	r := flow.Rate{Every: code.Every, Burst: code.Burst}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if code.RateMask != 0 {
		if b := rs.bucketLocked(k, now); b != nil {
			after, ok := b.Take(r, now)
			b.Bucket = after
			return rateReason(ok, firewall.ReasonRate)
		}
		rs.full++
	}
	after, ok := rs.rules[k.rule].Take(r, now)
	rs.rules[k.rule] = after
	if code.RateMask != 0 {
		return rateReason(ok, firewall.ReasonRatesFull)
	}
	return rateReason(ok, firewall.ReasonRate)
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
	} else if at = rs.unusedLocked(now); at < 0 {
		return nil
	}
	delete(rs.index, rs.all[at].key)
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

// renumber gives the buckets the new numbers of their rules, and forgets those of rules that have
// none: number returns false for them.
func (rs *rates) renumber(number func(rule uint32) (uint32, bool)) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	clear(rs.index)
	kept := rs.all[:0]
	for _, b := range rs.all {
		if n, ok := number(b.key.rule); ok {
			b.key.rule = n
			rs.index[b.key] = len(kept)
			kept = append(kept, b)
		}
	}
	rs.all, rs.hand = kept, 0
	rules := make(map[uint32]flow.Bucket, len(rs.rules))
	for id, b := range rs.rules {
		if n, ok := number(id); ok {
			rules[n] = b
		}
	}
	rs.rules = rules
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
	if j.dry != nil {
		return j.wouldTakeRate(k, code)
	}
	return j.sh.engine.rates.take(k, code, j.now)
}

// wouldTakeRate is takeRate in a dry run. A question of policy is about a packet that is not too
// much.
func (j *job) wouldTakeRate(k rateKey, code *program.Rule) firewall.Reason {
	if !j.dry.stateful {
		return firewall.ReasonRule
	}
	b, taken := j.dry.rates[k]
	if !taken {
		b = j.sh.engine.rates.bucket(k, code)
	}
	after, ok := b.Take(flow.Rate{Every: code.Every, Burst: code.Burst}, j.now)
	if j.dry.rates == nil {
		j.dry.rates = map[rateKey]flow.Bucket{}
	}
	j.dry.rates[k] = after
	return rateReason(ok, firewall.ReasonRate)
}

// bucket returns the bucket of a key as it is, a full one if it has none.
func (rs *rates) bucket(k rateKey, code *program.Rule) flow.Bucket {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if code.RateMask == 0 {
		return rs.rules[k.rule]
	}
	if i, ok := rs.index[k]; ok {
		return rs.all[i].Bucket
	}
	return 0
}

// rateKey returns the parts of the packet's tuple that the rule counts by. One host may have all
// addresses of a /64, so an IPv6 source is counted by that.
func (j *job) rateKey(code *program.Rule) (k rateKey) {
	p := j.p
	if code.RateMask&op.LimitSrcAddr != 0 {
		k.src = p.SrcIP
		if p.Version == 6 {
			clear(k.src[8:])
		}
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
