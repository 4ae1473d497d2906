package netfilter

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirnet/weir/rule"
)

// rate is what a rule of the source says about packets in a time.
type rate struct {
	packets, burst uint64 // burst 0: none is said
	unit           string // "second", "hour", or a beginning of it
	bytes          bool   // it counts bytes instead
	over           bool   // the rule matches what is too much
}

// problem is why a rule with the rate is left out, with what to write by hand. The rate belongs to
// the one rule of the source; here a rule can become several, and a chain is copied for each hook.
func (r rate) problem() string {
	const why = "a rate is one of a whole rule, which may become several rules here, each with a " +
		"rate of its own: "
	words := r.words()
	switch {
	case r.bytes:
		return why + "write a `pipe` by hand, which bounds bytes"
	case words == "":
		return why + "write it by hand with `limit-rate N/s`, for as many packets as you need"
	case r.over:
		return why + "write `" + words + "` by hand into the rule that lets these packets pass, " +
			"which drops what is too much"
	}
	return why + "write it by hand with `" + words + " exceed next`"
}

// words is the option of rules that means the rate, "" if there is none.
func (r rate) words() string {
	if r.unit == "" || !strings.Contains("smh", r.unit[:1]) || r.packets == 0 {
		return ""
	}
	words := fmt.Sprintf("limit-rate %d/%s", r.packets, r.unit[:1])
	if r.burst != 0 {
		words += fmt.Sprintf(" burst %d", r.burst)
	}
	if _, err := rule.ParseRule("allow ip from any to any "+words, nil); err != nil {
		return ""
	}
	return words
}

// limit reads a value of -m limit: "10/min", or a burst.
func (p *ruleParser) limit(option, value string) {
	if p.entry.rate == nil {
		// the values of xt_limit that iptables-save prints, and other programs leave out
		p.entry.rate = &rate{packets: 3, unit: "hour", burst: 5}
	}
	count, unit, _ := strings.Cut(value, "/")
	n, err := strconv.ParseUint(count, 10, 32)
	if err != nil {
		p.fail("%s %s is not understood", option, value)
		return
	}
	if option == "--limit-burst" {
		p.entry.rate.burst = n
		return
	}
	p.entry.rate.packets, p.entry.rate.unit = n, unit
	if unit == "" {
		p.entry.rate.unit = "second"
	}
}

// nftRate reads a limit statement of nft. One that is named has no numbers here.
func nftRate(m map[string]any) *rate {
	number := func(key string) uint64 {
		f, _ := m[key].(float64)
		return uint64(max(f, 0))
	}
	r := &rate{packets: number("rate"), burst: number("burst")}
	r.unit, _ = m["per"].(string)
	r.over, _ = m["inv"].(bool)
	unit, _ := m["rate_unit"].(string)
	r.bytes = unit != "" && unit != "packets"
	return r
}
