package enginetest

import (
	"net/netip"
	"time"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// modelRateKey is what a bucket of a rule with limit-rate counts.
type modelRateKey struct {
	rule     uint64 // program.Rule.Key
	from, to netip.AddrPort
}

// modelRate is a bucket that is refilled token by token. There is space for any number of them.
type modelRate struct {
	tokens uint32
	next   time.Duration // when the next token comes, while it is not full
}

// takeRate takes a token for the packet, and reports whether there was one.
func (j *job) takeRate(slot int, r *rule.Rule) bool {
	k := j.rateKey(slot, r.Rate.Mask)
	b, ok := j.rates[k]
	if !ok {
		b = modelRate{tokens: r.Rate.Burst}
	}
	for ; b.tokens < r.Rate.Burst && b.next <= j.now; b.tokens++ {
		b.next += r.Rate.Every()
	}
	if b.tokens == r.Rate.Burst {
		b.next = j.now + r.Rate.Every()
	}
	had := b.tokens > 0
	if had {
		b.tokens--
	}
	j.rates[k] = b
	j.seen.rate(r, had)
	return had
}

// rateKey returns the parts of the tuple that a mask names.
func (j *job) rateKey(slot int, mask op.LimitMask) modelRateKey {
	src, dst, sport, dport := netip.Addr{}, netip.Addr{}, uint16(0), uint16(0)
	if mask&op.LimitSrcAddr != 0 {
		src = source(j.p.Src(), j.in.Hook.Link())
	}
	if mask&op.LimitDstAddr != 0 {
		dst = j.p.Dst()
	}
	if mask&op.LimitSrcPort != 0 && j.p.HasPorts() {
		sport = j.p.SrcPort()
	}
	if mask&op.LimitDstPort != 0 && j.p.HasPorts() {
		dport = j.p.DstPort()
	}
	return modelRateKey{j.keys[slot], netip.AddrPortFrom(src, sport),
		netip.AddrPortFrom(dst, dport)}
}
