package enginetest

import (
	"fmt"
	"math/big"
	"net/netip"
	"time"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// modelPipeKey is what a bucket of a pipe counts.
type modelPipeKey struct {
	pipe     string // number and configuration
	version  uint8
	proto    packet.Proto
	src, dst netip.AddrPort
}

// modelPipe is a bucket that is refilled by the time that has passed. What it holds is counted in
// the time that the bandwidth needs for it, and is less than nothing after a packet that is larger
// than the bucket. There is space for any number of them.
type modelPipe struct {
	holds, at time.Duration
}

func pipeName(r *rule.Rule, x *rule.Pipe) string { return fmt.Sprint(r.Action.Arg, " ", x) }

// loadPipes takes the pipes that rules name, and forgets the buckets of others.
func (t *Model) loadPipes(all map[uint16]*rule.Pipe) {
	named := map[string]bool{}
	t.pipes = all
	for _, r := range t.rules {
		if x := t.pipeOf(r); x != nil {
			named[pipeName(r, x)] = true
		}
	}
	for k := range t.piped {
		if !named[k.pipe] {
			delete(t.piped, k)
		}
	}
}

// pipeOf returns the pipe that a rule is, nil if it is none or the pipe has no configuration.
func (t *Model) pipeOf(r *rule.Rule) *rule.Pipe {
	if r.Action.Op != op.ActionPipe {
		return nil
	}
	return t.pipes[uint16(r.Action.Arg)]
}

// carries takes the bytes of the packet of the pipe that a rule is, and reports whether they were
// there. Rules without a pipe carry everything.
func (j *job) carries(r *rule.Rule) bool {
	x := j.pipeOf(r)
	if x == nil || x.Bandwidth == 0 {
		return true
	}
	depth := x.Queue
	if !x.InBytes {
		depth *= 1500
	}
	full := max(pipeTime(x, depth+x.Burst, 0), 10*time.Millisecond) // a tick of the kernel's clock
	cost := min(pipeTime(x, j.onTheWire(), 1<<16-1), 1<<48-1)
	k := j.pipeKey(r, x)
	b, known := j.piped[k]
	if !known {
		b = modelPipe{holds: full, at: j.now}
	}
	b.holds, b.at = min(full, b.holds+j.now-b.at), j.now
	had := b.holds >= cost || b.holds == full
	if had {
		b.holds -= cost
	}
	j.piped[k] = b
	j.seen.pipe(&x.Mask, had)
	return had
}

// onTheWire cuts the packet into its segments and returns how many bytes they have.
func (j *job) onTheWire() (n uint32) {
	if len(j.in.Segments) == 0 || j.in.Segments[0] == 0 {
		return j.p.Len()
	}
	header, count := uint32(j.p.PayloadOffset()), 1
	for left := j.p.Len() - header; ; left -= uint32(j.in.Segments[0]) {
		if n += header; left <= uint32(j.in.Segments[0]) {
			j.seen.note(ofSegments, min(count, 2), "counted")
			return n + left
		}
		n += uint32(j.in.Segments[0])
		count++
	}
}

// pipeTime returns how long the bandwidth needs for n bytes: a byte takes a time that is rounded up
// to 2^-16 ns.
func pipeTime(x *rule.Pipe, n, round uint32) time.Duration {
	unit := new(big.Int).Lsh(big.NewInt(8*int64(time.Second)), 16)
	unit.Add(unit, big.NewInt(int64(x.Bandwidth)-1)).Div(unit, big.NewInt(int64(x.Bandwidth)))
	unit.Mul(unit, big.NewInt(int64(n))).Add(unit, big.NewInt(int64(round))).Rsh(unit, 16)
	return time.Duration(unit.Int64())
}

// pipeKey returns what the mask of a pipe leaves of the packet's tuple.
func (j *job) pipeKey(r *rule.Rule, x *rule.Pipe) modelPipeKey {
	k := modelPipeKey{pipe: pipeName(r, x)}
	m := x.Mask
	if m == (rule.PipeMask{}) {
		return k
	}
	k.version, k.proto = j.p.Version, j.p.Proto&packet.Proto(m.Proto)
	address := func(a netip.Addr, mask4 uint32, bits6 uint8) netip.Addr {
		if a.Is6() {
			return netip.PrefixFrom(a, int(bits6)).Masked().Addr()
		}
		b := a.As4()
		for i := range b {
			b[i] &= byte(mask4 >> (24 - 8*i))
		}
		return netip.AddrFrom4(b)
	}
	var sport, dport uint16
	if j.p.HasPorts() {
		sport, dport = j.p.SrcPort()&m.SrcPort, j.p.DstPort()&m.DstPort
	}
	k.src = netip.AddrPortFrom(address(j.p.Src(), m.Src, min(m.Src6, 64)), sport)
	k.dst = netip.AddrPortFrom(address(j.p.Dst(), m.Dst, m.Dst6), dport)
	return k
}
