package program

import (
	"math/rand/v2"
	"testing"
)

// TestDirectory compares the index with a search through the runs, at their borders and anywhere.
func TestDirectory(t *testing.T) {
	g := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		a := Addresses{V4: []AddressClass{{0, 0}}}
		for start := uint64(0); ; {
			start += 1 + g.Uint64N(1<<(1+g.IntN(29)))
			if start >= 1<<32 || len(a.V4) == 300 {
				break
			}
			a.V4 = append(a.V4, AddressClass{uint32(start), g.Uint32N(1 << 20)})
		}
		if g.IntN(2) == 0 {
			a.V4 = append(a.V4, AddressClass{1<<32 - 1, 7})
		}
		d := a.Directory()
		check := func(addr uint32) {
			want := uint32(0)
			for _, run := range a.V4 {
				if run.Start <= addr {
					want = run.Class
				}
			}
			got := d.Root[addr>>16]
			for _, low := range []uint32{addr >> 8 & 255, addr & 255} {
				if got&DirBlock != 0 {
					got = d.Blocks[got&^DirBlock<<8|low]
				}
			}
			if got != want {
				t.Fatalf("%08x has class %d, want %d", addr, got, want)
			}
		}
		for _, run := range a.V4 {
			check(run.Start)
			check(run.Start - 1)
			check(run.Start + 1)
		}
		for range 500 {
			check(g.Uint32())
		}
	}
}
