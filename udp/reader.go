package udp

// Reader reads a Conn into its own slots and returns single datagrams, even when the kernel
// delivers GRO packets. It is for one goroutine; a Conn may have several Readers.
type Reader struct {
	conn  *Conn
	slots []Message
	out   []Message
	bufs  [][]byte // backing store of out's Buffers: out[i].Buffers is bufs[i:i+1]
}

// NewReader makes a Reader with the given number of slots of MaxPayload bytes each. Sixteen are
// enough for a fast sender's GRO packets; they take one MiB.
func (c *Conn) NewReader(slots int) *Reader {
	slots = max(slots, 1)
	r := &Reader{conn: c, slots: make([]Message, slots)}
	slab := make([]byte, slots*MaxPayload)
	bufs := make([][]byte, slots)
	for i := range r.slots {
		bufs[i] = slab[i*MaxPayload : (i+1)*MaxPayload : (i+1)*MaxPayload]
		r.slots[i].Buffers = bufs[i : i+1 : i+1]
	}
	r.grow(slots)
	return r
}

// ReadBatch waits for datagrams and returns those that are there, in order, each in a Message of
// one buffer and with Segment 0. The messages and their buffers are valid until the next ReadBatch;
// the caller may write into the buffers until then.
func (r *Reader) ReadBatch() ([]Message, error) {
	n, err := r.conn.ReadBatch(r.slots)
	if err != nil {
		return nil, err
	}
	k := 0
	for i := range n {
		k = r.split(&r.slots[i], k)
	}
	return r.out[:k], nil
}

// split appends the datagrams of m to the first k of out and returns the new number.
func (r *Reader) split(m *Message, k int) int {
	rest, size := m.Payload(), m.Segment
	if size == 0 {
		size = len(rest)
	}
	for {
		if k == len(r.out) {
			r.grow(2 * k)
		}
		n := min(size, len(rest))
		d := &r.out[k]
		r.bufs[k] = rest[:n:n] // d.Buffers is this one
		d.N, d.Addr, d.Local, d.IfIndex = n, m.Addr, m.Local, m.IfIndex
		d.ECN, d.Truncated, d.Time = m.ECN, m.Truncated, m.Time
		k++
		if rest = rest[n:]; len(rest) == 0 {
			return k
		}
	}
}

// grow makes space for n datagrams and keeps those that are there.
func (r *Reader) grow(n int) {
	out, bufs := make([]Message, n), make([][]byte, n)
	copy(out, r.out)
	copy(bufs, r.bufs)
	for i := range out {
		out[i].Buffers = bufs[i : i+1 : i+1]
	}
	r.out, r.bufs = out, bufs
}
