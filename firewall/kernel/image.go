package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule/op"
)

// imageInput is what an image depends on beside the Program.
type imageInput struct {
	prog   *program.Program
	ids    []uint32 // by slot
	pipes  []uint32 // ids of the Program's pipes
	flows  []uint8  // lasting flow ids by the Program's
	tables []uint32 // lasting table ids by the Program's
	parity uint32
	serial uint32
}

// newImage lays a Program out.
func newImage(in imageInput) (*image, error) {
	p := in.prog
	im := &image{count: 1}
	h := &im.header
	h.Rules, h.Words, h.First = uint32(len(p.Rules)), uint32(p.Classes.Words), uint32(p.First)
	h.Parity, h.Serial = in.parity, in.serial
	h.Need, h.Lookups = needs(p)
	h.Flows = uint32(len(in.flows))
	copy(h.Flow[:], in.flows)

	im.codes = codes(in)
	if row := section(im, im.codes); row != firstCodes {
		return nil, fmt.Errorf("the rules lie at row %d of the image", row)
	}
	if h.FastFlow = fastFlow(in); h.FastFlow != 0 && p.Rules[0].State == op.StateCheck {
		h.After = 1
	}
	h.Slots = section(im, slots(in.ids))
	h.Conds = section(im, conds(in))
	h.Pipes, h.Npipes = section(im, pipes(in)), uint32(len(in.pipes))
	h.Ranges = section(im, slices.Clone(p.Ranges))
	h.Prefixes = section(im, append(prefixSpans(p.Prefixes), hopSpans(p.NextHops)...))
	look := looks(p)
	h.Look, h.LookBlocks = section(im, look), blocksOf(look)
	if err := im.classifier(&p.Classes); err != nil {
		return nil, err
	}
	h.Reads = reads(h.Dims, p.Conds)
	return im, nil
}

// reads returns what the vectors ask about, and above it what they or any condition do: record_read
// of bpf/lib/cond.h.
func reads(dims uint32, conds []program.Cond) uint32 {
	var narrow uint32
	if dims&(1<<program.DimSrc) != 0 {
		narrow |= readSrc
	}
	if dims&(1<<program.DimSrcPort) != 0 {
		narrow |= readSport
	}
	wide := narrow
	for i := range conds {
		switch conds[i].Op {
		case op.CondSrcIn, op.CondSrcMe, op.CondSrcTable, op.CondVerRevPath, op.CondVerSrcReach,
			op.CondAntiSpoof:
			wide |= readSrc
		case op.CondSrcPort:
			wide |= readSport
		}
	}
	return wide<<readBits | narrow
}

// needs returns what a Program asks of the programs, and how many different flow names its rules
// have to do with.
func needs(p *program.Program) (need, lookups uint32) {
	if p.Strict {
		need |= needStrict
	}
	flows := map[uint8]bool{}
	for i := range p.Rules {
		if c := &p.Rules[i]; c.State != op.StateNone {
			need |= needStates
			flows[c.Flow] = true
		}
	}
	lookups = uint32(len(flows))
	if flows[program.AnyFlow] {
		lookups = uint32(len(p.Flows))
	}
	for i := range p.Conds {
		switch p.Conds[i].Op {
		case op.CondRecv, op.CondXmit, op.CondVia, op.CondRecvGlob, op.CondXmitGlob, op.CondViaGlob:
			need |= needNames
		}
	}
	return need, lookups
}

func codes(in imageInput) []weirCode {
	out := make([]weirCode, len(in.prog.Rules))
	for slot := range out {
		c := &in.prog.Rules[slot]
		w := weirCode{
			Key: c.Key, Id: in.ids[slot], Arg: c.Arg, Prob: c.Prob, Limit: c.Limit,
			LogMax: c.LogMax, Cond: c.Cond, CondEnd: c.CondEnd,
			Number: c.Number, Tag: c.Tag, Action: uint8(c.Action), State: uint8(c.State),
			Flow: c.Flow, Mask: uint8(c.Mask), RateMask: uint8(c.RateMask),
			Every: int64(c.Every), Slack: int64(c.Every) * int64(max(c.Burst, 1)-1),
		}
		if c.Flow != program.AnyFlow {
			w.Flow = in.flows[c.Flow]
		}
		for _, f := range [...]struct {
			is  bool
			bit uint8
		}{{c.Defer, codeDefer}, {c.Log, codeLog}, {c.Liberal, codeLiberal}, {c.Frag, codeFrag},
			{c.Prob != 0, codeProb}, {c.Every != 0, codeRate}, {c.RateNext, codeRateNext},
			{c.Pipe != 0, codePipe}} {
			if f.is {
				w.Flags |= f.bit
			}
		}
		if c.Pipe != 0 {
			w.Arg = uint32(c.Pipe - 1)
		}
		if c.Action == op.ActionFwd { // next hops lie behind the prefixes
			w.Arg += uint32(len(in.prog.Prefixes))
		}
		out[slot] = w
	}
	return out
}

// fastFlow returns 1 + the flow that the first rule looks up for every packet, 0 if there is none.
func fastFlow(in imageInput) uint32 {
	c := &in.prog.Rules[0]
	if c.State.LooksUp() && c.Prob == 0 && c.Flow != program.AnyFlow {
		return 1 + uint32(in.flows[c.Flow])
	}
	return 0
}

// slots maps the indexes of rules to incarnation<<16 | slot.
func slots(ids []uint32) []uint32 {
	out := make([]uint32, maxIDs)
	for slot, id := range ids {
		out[id&0xffff] = id&0xffff0000 | uint32(slot)
	}
	return out
}

func conds(in imageInput) []weirCond {
	out := make([]weirCond, len(in.prog.Conds))
	for i := range out {
		c := &in.prog.Conds[i]
		out[i] = weirCond{Op: uint8(c.Op), Flags: uint8(c.Flags), N: c.N, A: c.A, B: c.B}
		if c.Op == op.CondSrcTable || c.Op == op.CondDstTable {
			out[i].A = in.tables[c.A]
		}
	}
	return out
}

// prefixSpans turns prefixes into spans of addresses.
func prefixSpans(prefixes []netip.Prefix) []weirSpan {
	out := make([]weirSpan, len(prefixes))
	for i, p := range prefixes {
		lo, hi := prefixBounds(p)
		out[i] = weirSpan{LoHi: lo[0], LoLo: lo[1], HiHi: hi[0], HiLo: hi[1]}
	}
	return out
}

// hopSpans lays next hops out: the address, and the port as hi_lo.
func hopSpans(hops []netip.AddrPort) []weirSpan {
	out := make([]weirSpan, len(hops))
	for i, h := range hops {
		out[i].LoHi, out[i].LoLo = packet.AddrWords(h.Addr())
		out[i].HiLo = uint64(h.Port())
	}
	return out
}

// prefixBounds returns the first and the last address of a prefix as words.
func prefixBounds(p netip.Prefix) (lo, hi [2]uint64) {
	p = p.Masked()
	lo[0], lo[1] = packet.AddrWords(p.Addr())
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	hi = lo
	if bits < 64 {
		hi[0] |= ^uint64(0) >> bits
		hi[1] = ^uint64(0)
	} else if bits < 128 {
		hi[1] |= ^uint64(0) >> (bits - 64)
	}
	return lo, hi
}

// looks returns a bit for every slot that looks states up, padded to a row.
func looks(p *program.Program) []uint64 {
	out := make([]uint64, rowSize/8)
	for slot := range p.Rules {
		if p.Rules[slot].State.LooksUp() {
			out[slot/64] |= 1 << (slot % 64)
		}
	}
	return out
}

// classifier appends the classifier's tables.
func (im *image) classifier(c *program.Classifier) error {
	h := &im.header
	if c.Words > rowSize/8 {
		return fmt.Errorf("vectors of %d words: at most %d", c.Words, rowSize/8)
	}
	small := make([]uint16, rowSize) // two rows
	copy(small, c.Proto[:])
	copy(small[512:], c.Flags[:])
	copy(small[776:], c.Hook[:])
	copy(small[rowSize/2:], c.ICMP[:])
	h.Small = section(im, small)

	per := 1 // words per vector, a power of two
	for per < c.Words {
		per *= 2
	}
	for h.Shift = 0; per<<(h.Shift+1) <= rowSize/8; h.Shift++ {
	}
	var sizes, weight [program.NumDims]int
	for d := range c.Vectors {
		v := &c.Vectors[d]
		sizes[d] = v.Len()
		h.Vectors[d] = im.vectors(v, per)
		h.Order[d] = uint8(d)
		if sizes[d] > 1 {
			h.Dims |= 1 << d
		}
		// One class in which some rule never matches counts as well: two conditions may contradict
		// each other.
		if sizes[d] > 1 || !allOnes(v.Dense(), int(h.Rules)) {
			h.Active++
			weight[d] = sizes[d]
			if c.Words > block {
				h.Sums[d] = section(im, sums(v))
			}
		}
	}
	slices.SortStableFunc(h.Order[:], func(a, b uint8) int { return weight[b] - weight[a] })
	for side, a := range []*program.Addresses{&c.Src, &c.Dst} {
		if sizes[side] <= 1 { // classes are not asked for
			continue
		}
		d := a.Directory()
		h.Root[side] = section(im, d.Root)
		h.Blocks[side] = section(im, d.Blocks)
		spans, err := spans6(a)
		if err != nil {
			return err
		}
		h.Spans[side], h.Nspans[side] = section(im, spans), uint32(len(spans))
	}
	for side := range c.Ports {
		if sizes[int(program.DimSrcPort)+side] > 1 {
			h.Ports[side] = section(im, c.Ports[side])
		}
	}
	return nil
}

// sums returns, for each vector, where it has bits. What differs from the vector before lies in few
// blocks.
func sums(vectors *program.Vectors) []uint32 {
	out := make([]uint32, vectors.Len())
	blocks := uint32(0)
	for class, vector := range vectors.All() {
		if class == 0 {
			blocks = blocksOf(vector)
		}
		for _, slot := range vectors.Flips(class) {
			b := slot / 64 / block
			words := vector[b*block : min((b+1)*block, uint32(len(vector)))]
			blocks = blocks&^(1<<b) | blocksOf(words)<<b
		}
		out[class] = blocks
	}
	return out
}

// blocksOf returns a bit for each block of a vector that is not empty.
func blocksOf(vector []uint64) (blocks uint32) {
	for b := uint32(1); len(vector) > 0; b <<= 1 {
		n := min(block, len(vector))
		any := uint64(0)
		for _, v := range vector[:n] {
			any |= v
		}
		if any != 0 {
			blocks |= b
		}
		vector = vector[n:]
	}
	return blocks
}

// allOnes reports whether a vector has the bits of all rules.
func allOnes(v []uint64, rules int) bool {
	for slot := range rules {
		if v[slot/64]>>(slot%64)&1 == 0 {
			return false
		}
	}
	return true
}

// maxSpans is how many spans the programs search.
const maxSpans = 1<<15 - 1

// spans6 turns the nested prefixes of IPv6 into spans without gaps, each lasting until the next
// begins: a binary search finds an address.
func spans6(a *program.Addresses) ([]weirSpan, error) {
	type open struct {
		end   [2]uint64
		class uint32
	}
	all := [2]uint64{^uint64(0), ^uint64(0)}
	around := []open{{all, a.Default6}}
	var out []weirSpan
	begin := func(at [2]uint64, class uint32) {
		if n := len(out); n > 0 && out[n-1].LoHi == at[0] && out[n-1].LoLo == at[1] {
			out[n-1].HiHi = uint64(class)
			return
		}
		out = append(out, weirSpan{LoHi: at[0], LoLo: at[1], HiHi: uint64(class)})
	}
	closeTo := func(at [2]uint64) { // ends the prefixes that end before at
		for len(around) > 1 && less(around[len(around)-1].end, at) {
			end := around[len(around)-1].end
			around = around[:len(around)-1]
			begin(next(end), around[len(around)-1].class)
		}
	}
	begin([2]uint64{}, a.Default6)
	for _, p := range a.V6 {
		lo, hi := prefixBounds(p.Prefix)
		closeTo(lo)
		begin(lo, p.Class)
		around = append(around, open{hi, p.Class})
	}
	for len(around) > 1 && around[len(around)-1].end != all {
		end := around[len(around)-1].end
		around = around[:len(around)-1]
		begin(next(end), around[len(around)-1].class)
	}
	if len(out) > maxSpans {
		return nil, fmt.Errorf("IPv6 prefixes make %d spans of addresses: at most %d; use a table",
			len(out), maxSpans)
	}
	return out, nil
}

func less(a, b [2]uint64) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }

func next(a [2]uint64) [2]uint64 {
	a[1]++
	if a[1] == 0 {
		a[0]++
	}
	return a
}
