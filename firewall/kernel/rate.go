package kernel

import (
	"fmt"

	"github.com/weirnet/weir/internal/program"
)

// fillRatesLocked makes the rules with limit-rate among the fresh ones begin with full buckets. ids
// and fresh are in the order of slots.
func (e *Engine) fillRatesLocked(rules []program.Rule, ids, fresh []uint32) error {
	var keys []uint32
	for slot := range rules {
		if len(fresh) == 0 || ids[slot] != fresh[0] {
			continue
		}
		if fresh = fresh[1:]; rules[slot].Every != 0 {
			keys = append(keys, ids[slot]&0xffff)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if _, err := e.objects.RuleRates.BatchUpdate(keys, make([]int64, len(keys)), nil); err != nil {
		return fmt.Errorf("fill the buckets of %d rules: %w", len(keys), err)
	}
	return nil
}
