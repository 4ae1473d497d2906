package main

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
	"unsafe"

	weir "github.com/weirnet/weir/packet"
	tailscale "tailscale.com/net/packet"
)

func main() {
	rounds := flag.Int("rounds", 2500, "interleaved rounds of every case")
	flag.Parse()
	if err := run(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "packet:", err)
		os.Exit(1)
	}
}

// decoder is one implementation: decode runs n times over b, each time into a new result.
type decoder struct {
	name   string
	decode func(b []byte, n int)
}

func decoders() []decoder {
	p, q := aligned[weir.Packet](), aligned[tailscale.Parsed]()
	return []decoder{
		{"weir", func(b []byte, n int) {
			for range n {
				*p = weir.Packet{}
				p.Decode(b)
			}
		}},
		{"tailscale", func(b []byte, n int) {
			for range n {
				*q = tailscale.Parsed{}
				q.Decode(b)
			}
		}},
		{"gvisor", gvisor},
		{"gopacket", gopacketSparse()},
	}
}

// run prints the tables.
func run(rounds int) error {
	fast, slow, err := cases()
	if err != nil {
		return err
	}
	if err := agree(fast); err != nil {
		return err
	}
	for _, ks := range [][]testCase{fast, slow} {
		for i := range ks {
			ks[i].b = inPage(ks[i].b, page/2)
		}
	}
	ds := decoders()
	fmt.Print("| case | bytes | weir ns | peer ns | ratio | allocs | gvisor ns | gopacket ns |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	worst := 1e9
	for i, row := range measure(ds, fast, rounds) {
		allocs := testing.AllocsPerRun(1000, func() { ds[0].decode(fast[i].b, 1) })
		ratio := row[1] / row[0]
		if allocs > 0 {
			ratio = 0 // Package packet promises no allocations.
		}
		worst = min(worst, ratio)
		fmt.Printf("| %s | %d | %.2f | %.2f | %.2f | %.0f | %.1f | %.1f |\n",
			fast[i].name, len(fast[i].b), row[0], row[1], ratio, allocs, row[2], row[3])
	}
	fmt.Print("\n| off the fast path | bytes | weir ns |\n| --- | --- | --- |\n")
	for i, row := range measure(ds[:1], slow, rounds) {
		fmt.Printf("| %s | %d | %.2f |\n", slow[i].name, len(slow[i].b), row[0])
	}
	fmt.Printf("\nworst ratio: %.2f\n", worst)
	return nil
}

const page = 4096

// aligned returns memory for a T that starts with a page, and so with a cache line; packets lie in
// the middle of pages (inPage). Otherwise their places would be random. A result that straddles
// cache lines costs every decoder up to a nanosecond and a half. A packet across two pages, or one
// whose address ends like the result's, costs ten. The garbage collector does not scan this memory,
// so what a T points to must be referenced elsewhere, as the packets are.
func aligned[T any]() *T {
	return (*T)(unsafe.Pointer(unsafe.SliceData(inPage(make([]byte, unsafe.Sizeof(*new(T))), 0))))
}

// inPage returns a copy of b that lies at an offset in a page.
func inPage(b []byte, offset int) []byte {
	space := make([]byte, len(b)+2*page)
	at := int(-uintptr(unsafe.Pointer(&space[0]))&(page-1)) + offset
	return append(space[at:at:at+len(b)], b...)
}

// measure returns the shortest time per packet in ns, for each case one row with each decoder.
// Interrupts and other processes only add time, and a round is too short to catch them all, so the
// minimum is the cost of the code.
func measure(ds []decoder, ks []testCase, rounds int) [][]float64 {
	const n = 2000
	out := make([][]float64, len(ks))
	for i := range out {
		out[i] = make([]float64, len(ds))
	}
	for round := range rounds {
		for i, k := range ks {
			for j := range ds {
				start := time.Now()
				ds[j].decode(k.b, n)
				if ns := float64(time.Since(start).Nanoseconds()) / n; round == 0 ||
					ns < out[i][j] {
					out[i][j] = ns
				}
			}
		}
	}
	return out
}

// agree checks that Tailscale's decoder and ours read the same from each packet.
func agree(ks []testCase) error {
	for _, k := range ks {
		var p weir.Packet
		var q tailscale.Parsed
		reason := p.Decode(k.b)
		q.Decode(k.b)
		if k.name == "unknown" {
			if reason == weir.ReasonNone || q.IPVersion != 0 {
				return fmt.Errorf("%s: read as %v and %v", k.name, p.String(), q.String())
			}
			continue
		}
		if reason != weir.ReasonNone || weir.Proto(q.IPProto) != p.Proto ||
			q.Src.Addr() != p.Src() ||
			q.Dst.Addr() != p.Dst() ||
			q.Src.Port() != p.SrcPort() || q.Dst.Port() != p.DstPort() ||
			uint8(q.TCPFlags) != p.TCPFlags {
			return fmt.Errorf("%s: read as %v and %v", k.name, p.String(), q.String())
		}
	}
	return nil
}
