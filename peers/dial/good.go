package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/weirnet/weir/eyeballs"
)

// row is one comparison of the good path.
type row struct {
	name    string
	address string
	timeout time.Duration
	work    func(dial dialFunc, network, address string, until time.Time) (ops int,
		spent time.Duration, err error)
	network string
	target  float64
}

const exchange = 512 // bytes, as in the benchmarks of package net

// slice is the time of one contender in a round.
const slice = 3 * time.Millisecond

// good compares dials without faults.
func good(rounds int) error {
	if err := loopbackUp(); err != nil {
		return err
	}
	hosts := "127.0.0.1 dual.test\n::1 dual.test\n"
	if err := inNamespace(hosts); err != nil {
		return err
	}
	server, err := child("serve")
	if err != nil {
		return err
	}
	defer server.Process.Kill()
	var rows []row
	for _, ip := range []struct{ name, host string }{{"TCP4", "127.0.0.1"}, {"TCP6", "[::1]"}} {
		at := fmt.Sprintf("%s:%d", ip.host, portEcho)
		rows = append(rows,
			row{ip.name + "OneShot", at, 0, oneShot, "tcp", 0.97},
			row{ip.name + "OneShotTimeout", at, 10 * time.Second, oneShot, "tcp", 0.97},
			row{ip.name + "Persistent", at, 0, persistent, "tcp", 0.97},
			row{ip.name + "ConcurrentReadWrite", at, 0, concurrent, "tcp", 0.97})
	}
	rows = append(rows,
		row{"name in the hosts file, both families accept", fmt.Sprintf("dual.test:%d", portEcho),
			0, oneShot, "tcp", 1},
		row{"name in the hosts file, IPv6 refuses", fmt.Sprintf("dual.test:%d", portOnly4), 0,
			oneShot, "tcp", 1},
		row{"name in DNS, never cached", fmt.Sprintf("uncached.test:%d", portEcho), 0, oneShot,
			"tcp", 1},
		row{"name in DNS", fmt.Sprintf("cached.test:%d", portEcho), 0, oneShot, "tcp", 1})
	for _, r := range rows {
		if err := r.compare(rounds); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

func (r *row) compare(rounds int) error {
	theirs := (&net.Dialer{Timeout: r.timeout}).DialContext
	ours := (&eyeballs.Dialer{Timeout: r.timeout}).DialContext
	contenders := []dialFunc{theirs, ours}
	var times [2][]float64
	for round := range rounds {
		for i := range contenders {
			k := (i + round) % 2 // both contenders go first equally often
			ops, spent, err := r.work(contenders[k], r.network, r.address, time.Now().Add(slice))
			if err != nil {
				return err
			}
			times[k] = append(times[k], float64(spent.Nanoseconds())/1000/float64(ops))
		}
	}
	var allocs [2]float64
	for i, dial := range contenders {
		var err error
		if allocs[i], err = countAllocs(dial, r.network, r.address); err != nil {
			return err
		}
	}
	// Both parts of a round run under the same load, so their ratio is more exact than that of the
	// times of all rounds.
	ratios := make([]float64, rounds)
	for i := range ratios {
		ratios[i] = times[0][i] / times[1][i]
	}
	slices.Sort(ratios)
	ratio := ratios[rounds/2]
	a, b := quartile(times[0]), quartile(times[1])
	fmt.Printf("| %s | %.1f (%.0f) | %.1f (%.0f) | %.2f | %.2f |\n", r.name, a, allocs[0], b,
		allocs[1], ratio, r.target)
	report(ratio / r.target)
	if allocs[1] > allocs[0] {
		report(allocs[0] / allocs[1])
	}
	return nil
}

// quartile returns the lower quartile: the speed of the machine with little other load.
func quartile(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/4]
}

// countAllocs counts the allocations of a dial and its close.
func countAllocs(dial dialFunc, network, address string) (float64, error) {
	const dials = 200
	var before, after runtime.MemStats
	for range 3 { // warm up
		if err := dialClose(dial, network, address); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&before)
	for range dials {
		if err := dialClose(dial, network, address); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return float64((after.Mallocs - before.Mallocs) / dials), nil
}

func dialClose(dial dialFunc, network, address string) error {
	c, err := dial(context.Background(), network, address)
	if err != nil {
		return err
	}
	return closeReset(c)
}

// closeReset closes with a RST, which leaves no TIME_WAIT: else the ports would run out.
func closeReset(c net.Conn) error {
	c.(*net.TCPConn).SetLinger(0)
	return c.Close()
}

func echoOnce(c net.Conn, b []byte) error {
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(c, b)
	return err
}

// oneShot dials for every exchange.
func oneShot(dial dialFunc, network, address string, until time.Time) (ops int, spent time.Duration,
	err error) {
	b := make([]byte, exchange)
	begin := time.Now()
	for ; time.Now().Before(until); ops++ {
		c, err := dial(context.Background(), network, address)
		if err != nil {
			return 0, 0, err
		}
		if err := echoOnce(c, b); err != nil {
			return 0, 0, err
		}
		closeReset(c)
	}
	return ops, time.Since(begin), nil
}

// persistent dials once for many exchanges.
func persistent(dial dialFunc, network, address string, until time.Time) (ops int,
	spent time.Duration, err error) {
	c, err := dial(context.Background(), network, address)
	if err != nil {
		return 0, 0, err
	}
	defer closeReset(c)
	b := make([]byte, exchange)
	begin := time.Now()
	for ; time.Now().Before(until); ops++ {
		if err := echoOnce(c, b); err != nil {
			return 0, 0, err
		}
	}
	return ops, time.Since(begin), nil
}

// concurrent writes and reads one connection from two goroutines.
func concurrent(dial dialFunc, network, address string, until time.Time) (ops int,
	spent time.Duration, err error) {
	c, err := dial(context.Background(), network, address)
	if err != nil {
		return 0, 0, err
	}
	defer closeReset(c)
	const batch = 64
	failed := make(chan error, 1)
	begin := time.Now()
	for time.Now().Before(until) {
		go func() {
			b := make([]byte, exchange)
			for range batch {
				if _, err := c.Write(b); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
		b := make([]byte, exchange)
		for range batch {
			if _, err := io.ReadFull(c, b); err != nil {
				return 0, 0, err
			}
		}
		if err := <-failed; err != nil {
			return 0, 0, err
		}
		ops += batch
	}
	return ops, time.Since(begin), nil
}
