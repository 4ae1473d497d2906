package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 60, "interleaved rounds of every row")
	slice := flag.Duration("slice", 4*time.Millisecond, "length of one contender's part of a round")
	flag.Parse()
	if err := run(*rounds, *slice); err != nil {
		fmt.Fprintln(os.Stderr, "udp:", err)
		os.Exit(1)
	}
}

// worst is the smallest ratio so far, each divided by the target of its row.
var worst = 1e9

func checkTarget(ratio, must float64) float64 {
	worst = min(worst, ratio/must)
	return ratio
}

func run(rounds int, slice time.Duration) error {
	if err := sizes(rounds, slice); err != nil {
		return err
	}
	if err := throughput(rounds, slice); err != nil {
		return err
	}
	fmt.Printf("\nEach ratio is divided by its target; 1 or more means that every target is "+
		"met.\n\nworst ratio: %.2f\n", worst)
	return nil
}

// sizes is x/net's own BenchmarkUDP, with all datagrams delivered: N messages of 15 bytes are sent
// and received.
func sizes(rounds int, slice time.Duration) error {
	fmt.Print("### Batches of N datagrams of 15 bytes, loopback, no offload\n\n" +
		"| N | x/net Iter ns (allocs, B) | x/net Batch ns (allocs, B) | weir Iter ns (allocs, B) " +
		"| weir Batch ns (allocs, B) | Iter ratio | Batch ratio | target | with GSO and GRO |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for n := 1; n <= 512; n *= 2 {
		l := load{to: make([]int, n), size: 15}
		r, err := compare(rounds, slice, l, true)
		if err != nil {
			return err
		}
		must := 1.0
		if n >= 8 {
			must = 1.05
		}
		iter, batch := r[0].wall/r[2].wall, checkTarget(r[1].wall/r[3].wall, must)
		if r[2].allocs+r[3].allocs+r[2].bytes+r[3].bytes > 0 {
			checkTarget(0, 1) // Package udp promises no allocations.
		}
		fmt.Printf("| %d | %s | %s | %s | %s | %.2f | %.2f | %.2f | %.2f |\n",
			n, cell(r[0]), cell(r[1]), cell(r[2]), cell(r[3]), iter, batch, must,
			r[1].wall/r[4].wall)
	}
	return nil
}

func cell(r result) string { return fmt.Sprintf("%.0f (%.0f, %.0f)", r.wall, r.allocs, r.bytes) }

// throughput is batches of 64 full-size datagrams, to one peer and to eight.
func throughput(rounds int, slice time.Duration) error {
	const n, peers = 64, 8
	fmt.Printf("\n### Batches of %d datagrams of 1400 bytes, loopback\n\n", n)
	fmt.Print("| to | x/net kpps | CPU ns | weir, no offload kpps | CPU ns | weir kpps | CPU ns " +
		"| pps ratio | CPU ratio | target |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	random := rand.New(rand.NewPCG(1, 2))
	one, runs, mixed := make([]int, n), make([]int, n), make([]int, n)
	for i := range n {
		mixed[i] = random.IntN(peers)
		runs[i] = i / (n / peers)
	}
	for _, row := range []struct {
		name string
		to   []int
		must float64
	}{
		{"one peer", one, 10},
		{"eight peers, runs of eight", runs, 1.1},
		{"eight peers, at random", mixed, 1.1},
	} {
		r, err := compare(rounds, slice, load{to: row.to, size: 1400}, false)
		if err != nil {
			return err
		}
		x, noGSO, w := r[0], r[1], r[2]
		fmt.Printf("| %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.2f | %.2f | %.2f |\n",
			row.name,
			n/x.wall*1e6, x.cpu/n, n/noGSO.wall*1e6, noGSO.cpu/n, n/w.wall*1e6, w.cpu/n,
			checkTarget(x.wall/w.wall, row.must), checkTarget(x.cpu/w.cpu, row.must), row.must)
	}
	return nil
}

// compare measures x/net's batch calls, ours without and with offloads. With iter set, it measures
// the single calls of both as well: x/net Iter, x/net Batch, our Iter, our Batch, our Batch with
// offloads.
func compare(rounds int, slice time.Duration, l load, iter bool) ([]result, error) {
	type maker struct {
		name string
		make func() (func() error, error)
	}
	makers := []maker{
		{"x/net Iter", func() (func() error, error) { return xnet(l, true) }},
		{"x/net Batch", func() (func() error, error) { return xnet(l, false) }},
		{"weir Iter", func() (func() error, error) { return ours(l, true, false) }},
		{"weir Batch", func() (func() error, error) { return ours(l, false, false) }},
		{"weir Batch with offloads", func() (func() error, error) { return ours(l, false, true) }},
	}
	if !iter {
		makers = []maker{makers[1], makers[3], makers[4]}
	}
	var cs []contender
	for _, m := range makers {
		run, err := m.make()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		cs = append(cs, contender{m.name, run})
	}
	return measure(rounds, slice, cs)
}

// forceBuffers gives the peer's sockets the same buffers as ours.
func forceBuffers(pc *net.UDPConn) error {
	raw, err := pc.SyscallConn()
	if err != nil {
		return err
	}
	const rcvBufForce, sndBufForce = 33, 32 // SO_RCVBUFFORCE, SO_SNDBUFFORCE
	var e error
	err = raw.Control(func(fd uintptr) {
		if e = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, rcvBufForce, buffer); e == nil {
			e = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, sndBufForce, buffer)
		}
	})
	if err != nil {
		return err
	}
	return e
}
