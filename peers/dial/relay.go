package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"syscall"
	"time"

	xproxy "golang.org/x/net/proxy"
)

// Targets of the proxy.
const (
	idleConns    = 10000
	idleMiB      = 150
	overheadUS   = 150
	throughputOf = 0.9
)

// relays measures `weir proxy`: server, proxy and client are three processes.
func relays(rounds int, weir string) error {
	if err := loopbackUp(); err != nil {
		return err
	}
	if err := inNamespace(""); err != nil {
		return err
	}
	server, err := child("serve")
	if err != nil {
		return err
	}
	defer server.Process.Kill()
	plain, err := child("plain")
	if err != nil {
		return err
	}
	defer plain.Process.Kill()
	p, err := startProxy(weir, portProxy)
	if err != nil {
		return err
	}
	defer p.Process.Kill()
	through, err := socksAt(portProxy)
	if err != nil {
		return err
	}
	if err := throughput(through, p.Process.Pid, plain.Process.Pid); err != nil {
		return err
	}
	if err := paced(through); err != nil {
		return err
	}
	if err := overhead(through, rounds); err != nil {
		return err
	}
	return idle(weir)
}

// startProxy runs the binary and waits until it listens.
func startProxy(weir string, port int) (*exec.Cmd, error) {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p := exec.Command(weir, "proxy", "--listen", address)
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		return nil, err
	}
	for range 100 {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return p, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.Process.Kill()
	return nil, errors.New("weir proxy does not listen")
}

// socksAt dials through the proxy at a port.
func socksAt(port int) (dialFunc, error) {
	d, err := xproxy.SOCKS5("tcp", fmt.Sprintf("127.0.0.1:%d", port), nil, nil)
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, network, address string) (net.Conn, error) {
		return d.Dial(network, address)
	}, nil
}

// throughput reads from a source: directly, through the proxy, and through a relay with two
// blocking splices, which shows what the machine allows. It measures the CPU time of both relays
// too: on a machine with fewer cores than processes, that makes the difference.
func throughput(through dialFunc, proxy, plain int) error {
	direct := new(net.Dialer).DialContext
	type path struct {
		dial  dialFunc
		port  int
		pid   int // of the relay
		rates []float64
		cpu   float64 // seconds
		bytes float64
	}
	paths := []*path{{dial: direct, port: portSource},
		{dial: through, port: portSource, pid: proxy},
		{dial: direct, port: portPlain, pid: plain}}
	for round := range 24 {
		for i := range paths {
			w := paths[(i+round)%len(paths)]
			before, err := cpuSeconds(w.pid)
			if err != nil {
				return err
			}
			rate, all, err := drain(w.dial, w.port, 300*time.Millisecond)
			if err != nil {
				return err
			}
			after, err := cpuSeconds(w.pid)
			if err != nil {
				return err
			}
			w.rates, w.cpu, w.bytes = append(w.rates, -rate), w.cpu+after-before, w.bytes+all
		}
	}
	var best [3]float64
	for i, w := range paths {
		best[i] = -quartile(w.rates) // of the negative: the upper quartile
	}
	fmt.Printf("| throughput of one connection, MiB/s | %.0f | %.0f | %.2f of direct | %.2f |\n",
		best[0], best[1], best[1]/best[0], throughputOf)
	report(best[1] / best[0] / throughputOf)
	fmt.Printf("| the same through two blocking splices, as in C | %.0f | %.0f | %.2f of "+
		"direct | |\n", best[0], best[2], best[2]/best[0])
	perGiB := func(w *path) float64 { return w.cpu * 1000 / (w.bytes / (1 << 30)) }
	fmt.Printf("| CPU of the proxy, ms per GiB | - | %.0f | %.0f for the two splices | |\n",
		perGiB(paths[1]), perGiB(paths[2]))
	return nil
}

// paced reads from a source with the speed of a network card of 10 Gbit/s. It shows the cost of the
// proxy when the machine is not the limit.
func paced(through dialFunc) error {
	direct := new(net.Dialer).DialContext
	var rates [2][]float64
	for round := range 8 {
		for i := range 2 {
			k := (i + round) % 2
			rate, _, err := drain([2]dialFunc{direct, through}[k], portPaced,
				300*time.Millisecond)
			if err != nil {
				return err
			}
			rates[k] = append(rates[k], -rate)
		}
	}
	a, b := -quartile(rates[0]), -quartile(rates[1])
	fmt.Printf("| the same from a source of 10 Gbit/s, MiB/s | %.0f | %.0f | %.2f of direct | |\n",
		a, b, b/a)
	return nil
}

// drain reads from a source for some time. It returns MiB per second, and the number of bytes.
func drain(dial dialFunc, port int, part time.Duration) (rate, all float64, err error) {
	c, err := dial(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	buf := make([]byte, 256<<10)
	read := func(d time.Duration) (total int, took time.Duration, err error) {
		begin := time.Now()
		for time.Since(begin) < d {
			n, err := c.Read(buf)
			if err != nil {
				return 0, 0, err
			}
			total += n
		}
		return total, time.Since(begin), nil
	}
	warm, _, err := read(50 * time.Millisecond)
	if err != nil {
		return 0, 0, err
	}
	total, took, err := read(part)
	return float64(total) / took.Seconds() / (1 << 20), float64(warm + total), err
}

// overhead compares how long a connection takes.
func overhead(through dialFunc, rounds int) error {
	direct := new(net.Dialer).DialContext
	var times [2][]float64
	for round := range rounds * 3 {
		for i := range 2 {
			k := (i + round) % 2
			begin := time.Now()
			c, err := [2]dialFunc{direct, through}[k](context.Background(), "tcp",
				fmt.Sprintf("127.0.0.1:%d", portEcho))
			if err != nil {
				return err
			}
			times[k] = append(times[k], float64(time.Since(begin).Nanoseconds())/1000)
			c.Close()
		}
	}
	a, b := quartile(times[0]), quartile(times[1])
	fmt.Printf("| SOCKS5 connect, us | %.0f | %.0f | %.0f more | %d |\n", a, b, b-a, overheadUS)
	report(overheadUS / (b - a))
	return nil
}
