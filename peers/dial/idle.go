package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// idle opens many connections through new proxies, leaves them idle, and measures the memory. A
// proxy needs two descriptors for each. If the limit of one process is lower, two proxies share the
// connections and the target.
func idle(weir string) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	proxies := 1
	if limit.Max < 2*idleConns+256 {
		proxies = 2
	}
	rss, conns := 0.0, make([]net.Conn, idleConns)
	for i := range proxies {
		p, err := startProxy(weir, portIdle+i)
		if err != nil {
			return err
		}
		defer p.Process.Kill()
		through, err := socksAt(portIdle + i)
		if err != nil {
			return err
		}
		if err := open(through, conns[i*idleConns/proxies:(i+1)*idleConns/proxies]); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
		mib, err := memory(p.Process.Pid)
		if err != nil {
			return err
		}
		rss += mib
	}
	what := "the proxy"
	if proxies > 1 {
		what = fmt.Sprintf("%d proxies", proxies)
	}
	fmt.Printf("| memory of %s with %d idle connections, MiB | - | %.0f | %.1f KiB each | %d |\n",
		what, idleConns, rss, rss*1024/idleConns, idleMiB)
	report(idleMiB / rss)
	b := []byte("x")
	for i, c := range conns {
		if err := echoOnce(c, b); err != nil {
			return fmt.Errorf("idle connection %d does not work any more: %w", i, err)
		}
	}
	return nil
}

// open opens conns from several goroutines, and checks that each works in both directions.
func open(through dialFunc, conns []net.Conn) error {
	const workers = 16
	var wait sync.WaitGroup
	failed := make(chan error, workers)
	for worker := range workers {
		wait.Go(func() {
			b := []byte("x")
			for i := worker; i < len(conns); i += workers {
				c, err := through(context.Background(), "tcp",
					fmt.Sprintf("127.0.0.1:%d", portEcho))
				if err == nil {
					err = echoOnce(c, b)
				}
				if err != nil {
					failed <- fmt.Errorf("connection %d: %w", i, err)
					return
				}
				conns[i] = c
			}
		})
	}
	wait.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
