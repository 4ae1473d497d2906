package netfilter

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/weirnet/weir/rule"
)

// nftValue is a value on the right side of a match: one, or a range.
type nftValue struct {
	lo, hi string
	bits   int // of a prefix, -1 for others
	parts  []nftValue
}

// value reads a value of nft's JSON.
func value(v any) (nftValue, error) {
	one := nftValue{bits: -1}
	switch v := v.(type) {
	case string:
		one.lo, one.hi = v, v
		return one, nil
	case float64:
		one.lo = strconv.FormatFloat(v, 'f', -1, 64)
		one.hi = one.lo
		return one, nil
	case bool:
		one.lo = strconv.FormatBool(v)
		one.hi = one.lo
		return one, nil
	case map[string]any:
		return compound(v)
	}
	return one, fmt.Errorf("a value that is not understood: %v", v)
}

func compound(v map[string]any) (nftValue, error) {
	one := nftValue{bits: -1}
	if e, ok := v["elem"].(map[string]any); ok {
		return value(e["val"])
	}
	if p, ok := v["prefix"].(map[string]any); ok {
		addr, _ := p["addr"].(string)
		length, _ := p["len"].(float64)
		one.lo, one.hi, one.bits = addr, addr, int(length)
		return one, nil
	}
	if r, ok := v["range"].([]any); ok && len(r) == 2 {
		from, err1 := value(r[0])
		to, err2 := value(r[1])
		if err1 != nil || err2 != nil {
			return one, fmt.Errorf("a range that is not understood")
		}
		one.lo, one.hi = from.lo, to.lo
		return one, nil
	}
	if c, ok := v["concat"].([]any); ok {
		for _, part := range c {
			p, err := value(part)
			if err != nil {
				return one, err
			}
			one.parts = append(one.parts, p)
		}
		return one, nil
	}
	return one, fmt.Errorf("a value that is not understood")
}

// values reads the right side of a match: a value, a list, or an anonymous set.
func values(v any) (all []nftValue, err error) {
	list, ok := v.([]any)
	if !ok {
		list = members(v)
	}
	for _, item := range list {
		one, err := value(item)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// members returns the members of an anonymous set, or else the value alone.
func members(v any) []any {
	m, _ := v.(map[string]any)
	set, ok := m["set"]
	if !ok {
		return []any{v}
	}
	if list, ok := set.([]any); ok {
		return list
	}
	return []any{set}
}

// prefixes returns the addresses as prefixes.
func (v nftValue) prefixes() ([]netip.Prefix, error) {
	if v.parts != nil {
		return nil, fmt.Errorf("a set of more than addresses is not a table")
	}
	if v.bits >= 0 {
		p, err := parsePrefix(v.lo + "/" + strconv.Itoa(v.bits))
		return []netip.Prefix{p}, err
	}
	return rangePrefixes(v.lo + "-" + v.hi)
}

// number returns a range of numbers. names are other words for them.
func (v nftValue) number(most uint64, names map[string]string) (rule.Range, bool) {
	read := func(text string) (uint32, bool) {
		if n, ok := names[text]; ok {
			text = n
		}
		return number(text, most)
	}
	lo, ok1 := read(v.lo)
	hi, ok2 := read(v.hi)
	return rule.Range{Lo: lo, Hi: hi}, ok1 && ok2 && lo <= hi && v.bits < 0
}
