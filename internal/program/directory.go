package program

import "slices"

// Directory finds the class of an IPv4 address in three levels of 16, 8 and 8 bits. The first is
// Root[a>>16]. An entry with DirBlock set names a block of 256 entries in Blocks for the next 8
// bits. Scattered addresses take a block each, a kilobyte: only an engine makes one, when a Program
// comes into force.
type Directory struct {
	Root   []uint32 // 65536 entries
	Blocks []uint32 // 256 entries per block
}

// DirBlock marks an entry of Directory.Root or Blocks that names a block: entry &^ DirBlock is its
// number.
const DirBlock = 1 << 31

// Directory makes the index of V4.
func (a *Addresses) Directory() Directory {
	d := dirBuilder{runs: a.V4}
	root := make([]uint32, 1<<16)
	d.level(func() []uint32 { return root }, 0, 16)
	return Directory{root, d.blocks}
}

// dirBuilder makes the blocks of a Directory. Addresses are passed in rising order, so at follows
// the runs.
type dirBuilder struct {
	runs   []AddressClass
	at     int // run of the address passed last
	blocks []uint32
}

// run returns the class of an address and how many addresses from it on are of this class.
func (d *dirBuilder) run(addr uint64) (class uint32, n uint64) {
	for d.at+1 < len(d.runs) && uint64(d.runs[d.at+1].Start) <= addr {
		d.at++
	}
	end := uint64(1) << 32
	if d.at+1 < len(d.runs) {
		end = uint64(d.runs[d.at+1].Start)
	}
	return d.runs[d.at].Class, end - addr
}

// level fills a table whose entries stand for 2^bits addresses each, from base on: with a class, or
// with a block where an entry's addresses are of several classes. The table is looked up again
// after every block, because blocks move when they grow.
func (d *dirBuilder) level(table func() []uint32, base uint64, bits int) {
	n := len(table())
	for i := 0; i < n; {
		first := base + uint64(i)<<bits
		class, run := d.run(first)
		if whole := int(min(run>>bits, uint64(n-i))); whole > 0 {
			entries := table()[i : i+whole]
			for j := range entries {
				entries[j] = class
			}
			i += whole
			continue
		}
		number := len(d.blocks) / 256
		d.blocks = double(d.blocks, 256)[:len(d.blocks)+256]
		d.level(func() []uint32 { return d.blocks[number*256:][:256] }, first, bits-8)
		table()[i] = DirBlock | uint32(number)
		i++
	}
}

// double makes space for n more, doubling what is full: append grows large slices by a quarter only
// and copies them too often.
func double[T any](s []T, n int) []T {
	if len(s)+n > cap(s) {
		return slices.Grow(s, max(len(s), n))
	}
	return s
}
