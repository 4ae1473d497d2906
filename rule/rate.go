package rule

import (
	"math"
	"strings"
	"time"

	"github.com/weirnet/weir/rule/op"
)

// Rate is what limit-rate says: N packets in each Per match, for each combination of the parts of
// the tuple that Mask names, and Burst at once.
type Rate struct {
	N     uint32        // 0: no limit-rate; at most MaxRate
	Per   time.Duration // a second, a minute or an hour
	Mask  op.LimitMask  // 0: all packets of the rule together
	Burst uint32        // from 1 to MaxRate
	Next  bool          // exceed next: the rule does not match what is too much
}

// MaxRate is the largest N and the largest Burst of a Rate.
const MaxRate = 1_000_000

// maxRefill bounds how long a bucket takes to be full again: so long it keeps its place.
const maxRefill = 24 * time.Hour

// Every returns the time between two packets. It is rounded up: no more than N match in each Per.
func (r *Rate) Every() time.Duration {
	if r.N == 0 {
		return 0
	}
	return (r.Per + time.Duration(r.N) - 1) / time.Duration(r.N)
}

var rateUnits = []struct {
	name string
	per  time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}}

const rateHint = "limit-rate 10/s src-addr; s, m and h are the units"

// rate reads limit-rate N/UNIT [WHAT...] [burst B] [exceed drop|next].
func (p *parser) rate(r *Rule) error {
	t := p.next()
	if r.Rate.N != 0 {
		return p.fail(t, "", "a rule has one limit-rate")
	}
	value, err := p.need("rate", rateHint)
	if err != nil {
		return err
	}
	rate := Rate{}
	number, unit, _ := strings.Cut(value.text, "/")
	for _, u := range rateUnits {
		if u.name == unit {
			rate.Per = u.per
		}
	}
	if rate.Per == 0 {
		return p.fail(value, rateHint, "rate must be a number for each unit of time, not %s",
			quote(value.text))
	}
	if rate.N, err = p.num(value.sub(0, len(number)), "rate", 1, MaxRate); err != nil {
		return err
	}
	rate.Mask, rate.Burst = p.parts(), rate.N
	if p.accept("burst") {
		at := p.peek()
		if rate.Burst, err = p.needNum("burst", 1, MaxRate); err != nil {
			return err
		}
		if full := float64(rate.Burst) * float64(rate.Every()); full > float64(maxRefill) {
			return p.fail(at, "a smaller burst or a higher rate",
				"a burst of %d at %s takes %.0f hours to refill, at most 24", rate.Burst,
				value.text, math.Ceil(full/float64(time.Hour)))
		}
	}
	if p.accept("exceed") {
		switch t, err := p.need("drop or next", "exceed next"); {
		case err != nil:
			return err
		case t.text == "next":
			rate.Next = true
		case t.text != "drop":
			return p.fail(t, "drop the packet, or leave it to the next rule",
				"expected \"drop\" or \"next\", found %s", quote(t.text))
		}
	}
	r.Rate = rate
	return nil
}

// parts reads the parts of the tuple that limit and limit-rate count by, 0 if there are none.
func (p *parser) parts() (mask op.LimitMask) {
	if p.accept("all") {
		mask = op.LimitSrcAddr | op.LimitSrcPort | op.LimitDstAddr | op.LimitDstPort
	}
	for more := true; more; {
		more = false
		for _, w := range limitWords {
			if p.accept(w.name) {
				mask |= w.mask
				more = true
			}
		}
	}
	return mask
}

func (r *Rule) appendRate(b []byte) []byte {
	rate := &r.Rate
	if rate.N == 0 {
		return b
	}
	b = append(appendNumber(append(b, " limit-rate "...), rate.N), '/')
	for _, u := range rateUnits {
		if u.per == rate.Per {
			b = append(b, u.name...)
		}
	}
	b = appendParts(b, rate.Mask)
	if rate.Burst != rate.N {
		b = appendNumber(append(b, " burst "...), rate.Burst)
	}
	if rate.Next {
		b = append(b, " exceed next"...)
	}
	return b
}

func appendParts(b []byte, mask op.LimitMask) []byte {
	for _, w := range limitWords {
		if mask&w.mask != 0 {
			b = append(append(b, ' '), w.name...)
		}
	}
	return b
}
