package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	xproxy "golang.org/x/net/proxy"
)

// Bars of the proxy.
const (
	idleConns    = 10000
	idleMiB      = 150
	overheadUS   = 150
	throughputOf = 0.9
)

// relays measures the proxy: server, proxy and client are three processes.
func relays(rounds int) error {
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
	p, err := child("proxy")
	if err != nil {
		return err
	}
	defer p.Process.Kill()
	socks, err := xproxy.SOCKS5("tcp", fmt.Sprintf("127.0.0.1:%d", portProxy), nil, nil)
	if err != nil {
		return err
	}
	through := func(_ context.Context, network, address string) (net.Conn, error) {
		return socks.Dial(network, address)
	}
	if err := throughput(through, p.Process.Pid); err != nil {
		return err
	}
	if err := overhead(through, rounds); err != nil {
		return err
	}
	return idle(through, p.Process.Pid)
}

// throughput reads from a source, in turn directly and through the proxy, whose
// own work it also measures: on a machine with fewer cores than processes that is
// what makes the difference.
func throughput(through dialFunc, pid int) error {
	const part = 300 * time.Millisecond
	direct := new(net.Dialer).DialContext
	buf := make([]byte, 256<<10)
	var rates [2][]float64
	var relayed, cpu float64
	for round := range 12 {
		for i := range 2 {
			who := (i + round) % 2
			c, err := [2]dialFunc{direct, through}[who](context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", portSource))
			if err != nil {
				return err
			}
			before, err := cpuSeconds(pid)
			if err != nil {
				return err
			}
			sum := 0
			warm := time.Now().Add(50 * time.Millisecond)
			for time.Now().Before(warm) {
				n, err := c.Read(buf)
				if err != nil {
					return err
				}
				sum += n
			}
			begin, total := time.Now(), 0
			for time.Since(begin) < part {
				n, err := c.Read(buf)
				if err != nil {
					return err
				}
				total += n
			}
			rates[who] = append(rates[who], -float64(total)/time.Since(begin).Seconds()/(1<<20))
			c.Close()
			if who == 1 {
				after, err := cpuSeconds(pid)
				if err != nil {
					return err
				}
				relayed, cpu = relayed+float64(sum+total)/(1<<30), cpu+after-before
			}
		}
	}
	a, b := -quartile(rates[0]), -quartile(rates[1]) // of the negative: the upper quartile
	fmt.Printf("| throughput of one connection, MiB/s | %.0f | %.0f | %.2f of direct | %.2f |\n", a, b, b/a, throughputOf)
	held(b / a / throughputOf)
	fmt.Printf("| CPU of the proxy, ms per GiB | - | %.0f | | |\n", cpu*1000/relayed)
	return nil
}

// overhead compares how long a connection takes.
func overhead(through dialFunc, rounds int) error {
	direct := new(net.Dialer).DialContext
	var times [2][]float64
	for round := range rounds * 3 {
		for i := range 2 {
			who := (i + round) % 2
			begin := time.Now()
			c, err := [2]dialFunc{direct, through}[who](context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", portEcho))
			if err != nil {
				return err
			}
			times[who] = append(times[who], float64(time.Since(begin).Nanoseconds())/1000)
			c.Close()
		}
	}
	a, b := quartile(times[0]), quartile(times[1])
	fmt.Printf("| SOCKS5 connect, us | %.0f | %.0f | %.0f more | %d |\n", a, b, b-a, overheadUS)
	held(overheadUS / (b - a))
	return nil
}

// idle opens many connections, leaves them alone, and looks at the proxy's memory.
func idle(through dialFunc, pid int) error {
	// The proxy needs two descriptors for each; if it may not have so many, fewer
	// connections get less memory.
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	count := min(idleConns, int(limit.Max-100)/2)
	bar := float64(idleMiB) * float64(count) / idleConns
	conns := make([]net.Conn, count)
	var wait sync.WaitGroup
	failed := make(chan error, 16)
	for worker := range 16 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			b := []byte("x")
			for i := worker; i < count; i += 16 {
				c, err := through(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", portEcho))
				if err == nil {
					err = echoOnce(c, b) // it works, in both directions
				}
				if err != nil {
					failed <- fmt.Errorf("connection %d: %w", i, err)
					return
				}
				conns[i] = c
			}
		}()
	}
	wait.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	time.Sleep(2 * time.Second)
	rss, err := memory(pid)
	if err != nil {
		return err
	}
	fmt.Printf("| memory of the proxy with %d idle connections, MiB | - | %.0f | %.1f KiB each | %.0f |\n", count, rss, rss*1024/float64(count), bar)
	held(bar / rss)
	for _, c := range conns {
		c.Close()
	}
	return nil
}

// cpuSeconds is the CPU time that a process has used, in ticks of 10 ms.
func cpuSeconds(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	user, err := strconv.ParseFloat(f[11], 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseFloat(f[12], 64)
	return (user + system) / 100, err
}

// memory is the resident memory of a process in MiB.
func memory(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS of process %d", pid)
}
