package rule

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/weirnet/weir/internal/program"
)

// Pipe is what "pipe N config" says: how much the packets of the rules with this pipe may carry
// together. With a Mask the bound is for each combination of the parts of the tuple that Mask
// keeps.
type Pipe struct {
	Bandwidth uint64 // bits in a second, from MinBandwidth to MaxBandwidth; 0: no bound
	Queue     uint32 // what may be ahead of the bandwidth: packets of 1500 bytes, or bytes
	InBytes   bool   // Queue counts bytes
	Burst     uint32 // bytes beyond Queue
	Mask      PipeMask
}

// PipeMask is the parts of the tuple that tell the buckets of a pipe apart. The zero PipeMask has
// one bucket for all packets.
type PipeMask struct {
	Src, Dst         uint32 // IPv4
	Src6, Dst6       uint8  // IPv6: prefix lengths
	SrcPort, DstPort uint16
	Proto            uint8
}

// The bounds of Pipe.Bandwidth.
const (
	MinBandwidth = 1000
	MaxBandwidth = 100_000_000_000
)

// The queue of a pipe whose configuration names none, and the length that a slot counts for.
const (
	defaultSlots = 50
	slotBytes    = 1500
)

// maxSlots and maxPipeBytes bound Pipe.Queue and Pipe.Burst.
const (
	maxSlots     = 10_000
	maxPipeBytes = 1 << 30
)

// depth returns how many bytes a full bucket holds.
func (x *Pipe) depth() uint64 {
	if x.InBytes {
		return uint64(x.Queue) + uint64(x.Burst)
	}
	return uint64(x.Queue)*slotBytes + uint64(x.Burst)
}

// perByte returns the time of a byte in the unit of program.Pipe, rounded up: no more than
// Bandwidth passes.
func (x *Pipe) perByte() uint64 {
	const bitsOfByte = 8
	unit := uint64(bitsOfByte*time.Second) << program.PipeShift
	return (unit + x.Bandwidth - 1) / x.Bandwidth
}

// leastRefill is one tick of the coarsest clock of a kernel (HZ=100), which the kernel engine
// counts by. What a bucket would get beyond its size between two ticks is lost: a smaller one
// carries less than its bandwidth.
const leastRefill = 10 * time.Millisecond

// refill returns how long an empty bucket takes to be full again.
func (x *Pipe) refill() time.Duration {
	hi, lo := bits.Mul64(x.depth(), x.perByte())
	if hi>>(program.PipeShift-1) != 0 {
		return math.MaxInt64
	}
	return max(time.Duration(hi<<(64-program.PipeShift)|lo>>program.PipeShift), leastRefill)
}

// String returns the configuration in canonical form, as it stands behind "pipe N config".
func (x *Pipe) String() string {
	b := make([]byte, 0, 64)
	if x.Bandwidth != 0 {
		b = fmt.Appendf(b, " bw %s", formatBandwidth(x.Bandwidth))
	}
	switch {
	case x.InBytes:
		b = fmt.Appendf(b, " queue %dBytes", x.Queue)
	case x.Queue != defaultSlots:
		b = fmt.Appendf(b, " queue %d", x.Queue)
	}
	if x.Burst != 0 {
		b = fmt.Appendf(b, " burst %d", x.Burst)
	}
	if b = x.Mask.append(b); len(b) == 0 {
		return "bw 0"
	}
	return string(b[1:])
}

func formatBandwidth(n uint64) string {
	for _, u := range bandwidthUnits {
		if n%u.times == 0 {
			return strconv.FormatUint(n/u.times, 10) + u.name
		}
	}
	return ""
}

// bandwidthUnits are those of the canonical form, the largest first.
var bandwidthUnits = []struct {
	name  string
	times uint64
}{{"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"Kbit/s", 1e3}, {"bit/s", 1}}

func (m *PipeMask) append(b []byte) []byte {
	if *m == (PipeMask{}) {
		return b
	}
	b = append(b, " mask"...)
	for _, part := range [...]struct {
		name, form string
		value      uint64
	}{
		{"src-ip", "%#08x", uint64(m.Src)}, {"dst-ip", "%#08x", uint64(m.Dst)},
		{"src-ip6", "/%d", uint64(m.Src6)}, {"dst-ip6", "/%d", uint64(m.Dst6)},
		{"src-port", "%#04x", uint64(m.SrcPort)}, {"dst-port", "%#04x", uint64(m.DstPort)},
		{"proto", "%#02x", uint64(m.Proto)},
	} {
		if part.value != 0 {
			b = fmt.Appendf(b, " %s "+part.form, part.name, part.value)
		}
	}
	return b
}

// compiled returns what engines take of the pipe with a number.
func (x *Pipe) compiled(number uint16) program.Pipe {
	m := &x.Mask
	return program.Pipe{
		Key:    max(fnv1a(fnvBasis, fmt.Sprintf("pipe %d config %s", number, x)), 1),
		Number: number, PerByte: x.perByte(), Depth: x.refill(),
		Src: m.Src, Dst: m.Dst, Src6: min(m.Src6, 64), Dst6: m.Dst6,
		Ports: uint32(m.SrcPort)<<16 | uint32(m.DstPort), Proto: m.Proto,
	}
}
