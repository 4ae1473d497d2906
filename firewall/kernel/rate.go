package kernel

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/weirnet/weir/internal/program"
)

// rowPipes is how many pipes a row of an image holds.
const rowPipes = rowSize / uint32(unsafe.Sizeof(weirPipe{}))

// fillRatesLocked makes those of the fresh rules and pipes that have a bucket begin with full ones.
// Fresh ids are in the order of slots, those of pipes behind them.
func (e *Engine) fillRatesLocked(p *program.Program, fresh []uint32, in imageInput) error {
	var keys []uint32
	fill := func(id uint32, has bool) {
		if len(fresh) == 0 || id != fresh[0] {
			return
		}
		if fresh = fresh[1:]; has {
			keys = append(keys, id&0xffff)
		}
	}
	for slot, id := range in.ids {
		fill(id, p.Rules[slot].Every != 0)
	}
	for _, id := range in.pipes {
		fill(id, true)
	}
	if len(keys) == 0 {
		return nil
	}
	if _, err := e.objects.RuleRates.BatchUpdate(keys, make([]int64, len(keys)), nil); err != nil {
		return fmt.Errorf("fill the buckets of %d rules and pipes: %w", len(keys), err)
	}
	return nil
}

// pipes lays the pipes of a Program out.
func pipes(in imageInput) []weirPipe {
	out := make([]weirPipe, len(in.pipes))
	for i, id := range in.pipes {
		x := &in.prog.Pipes[i]
		out[i] = weirPipe{Key: x.Key, PerByte: x.PerByte, Depth: int64(x.Depth), Id: id,
			Src: x.Src, Dst: x.Dst, Src6Hi: ones(x.Src6), Dst6Hi: ones(x.Dst6), Ports: x.Ports,
			Proto: x.Proto}
		if x.Dst6 > 64 {
			out[i].Dst6Lo = ones(x.Dst6 - 64)
		}
		if x.Masked() {
			out[i].Masked = 1
		}
	}
	return out
}

// ones returns a word whose highest bits are set, all 64 for more.
func ones(bits uint8) uint64 { return ^(uint64(math.MaxUint64) >> bits) }
