package firewall

// Decision is a kind of verdict, by which packets are counted: the direction, whether they passed,
// and why.
type Decision struct {
	Dir    Direction
	Pass   bool
	Reason Reason
}

// NumDecisions is one more than the largest Index.
const NumDecisions = 4 << 7

// Index numbers the decisions from 0, so that an engine can count them in an array;
// bpf/lib/evaluate.h counts by the same number.
func (d Decision) Index() int {
	i := int(d.Dir&1)<<8 | int(d.Reason&127)
	if d.Pass {
		i |= 1 << 7
	}
	return i
}

// DecisionAt returns the decision with an Index.
func DecisionAt(i int) Decision {
	return Decision{Dir: Direction(i >> 8 & 1), Pass: i>>7&1 == 1, Reason: Reason(i & 127)}
}

// Count is a number of packets and their bytes (IP length; 0 for a frame that is not IP or has no
// valid IP header).
type Count struct{ Packets, Bytes uint64 }

// Add adds more to c.
func (c *Count) Add(more Count) {
	c.Packets += more.Packets
	c.Bytes += more.Bytes
}

// ByReason returns how many packets each reason decided, at all hooks and whether they passed or
// not.
func ByReason(all map[Decision]Count) map[Reason]uint64 {
	sums := map[Reason]uint64{}
	for d, n := range all {
		sums[d.Reason] += n.Packets
	}
	return sums
}
