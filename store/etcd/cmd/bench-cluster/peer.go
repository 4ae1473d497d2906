package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/etcd"
)

// member runs an etcd until standard input ends.
func member(dir string) int {
	m, err := etcd.Start(context.Background(), etcd.MemberConfig{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer m.Close()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // its end is what matters
	return 0
}

// watchers are direct watches on an etcd, each with a connection of its own, without TLS.
type watchers struct {
	bench *bench
	times *arrivals
}

// peer measures bare etcd: what the same hosts would get without weir-store.
func (b *bench) peer() error {
	dir := filepath.Join(b.dir, "bare")
	c := exec.Command(os.Args[0], "-member", dir)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if _, err := c.StdinPipe(); err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer func() {
		_ = c.Process.Kill() // it is the end anyway
		_ = c.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("the peer: %q: %w", line, err)
	}
	d, err := etcd.Open(etcd.Config{Client: clientv3.Config{
		Endpoints: []string{etcd.EndpointIn(dir)}}})
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err := b.fill(d); err != nil {
		return err
	}
	return b.watchDirectly(c.Process.Pid, dir, d)
}

func (b *bench) watchDirectly(pid int, dir string, d store.Store) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &watchers{b, newArrivals()}
	used, err := cpu(pid)
	if err != nil {
		return err
	}
	begin := time.Now()
	failed := make(chan error, b.hosts)
	var ready sync.WaitGroup
	for range b.hosts {
		ready.Add(1)
		go func() { failed <- w.follow(ctx, dir, ready.Done) }()
	}
	ready.Wait()
	took := time.Since(begin)
	now, err := cpu(pid)
	if err != nil {
		return err
	}
	heading("The peer: each host watches etcd itself, without TLS")
	b.row("all begin with nothing", took.Seconds(), 0, "s")
	b.row("processor time of etcd", (now - used).Seconds(), 0, "s")
	resident, err := memory(pid)
	if err != nil {
		return err
	}
	b.row("resident memory", float64(resident)/1e6, 0, "MB")
	b.take(w.times)
	if err := b.heads(ctx, d, b.rounds(), 200*time.Millisecond, noCheck); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	head := b.take(w.times)["head"]
	b.row("a version to each copy, p50", percentile(head, 0.5), 0, "ms")
	b.row("p99", percentile(head, 0.99), 0, "ms")
	for _, rate := range []int{100, 300} {
		count := b.rounds() * rate / 10
		took, err := b.write(d, rate, 1, count)
		if err != nil {
			return err
		}
		time.Sleep(3 * time.Second)
		pods := b.take(w.times)["pods"]
		b.row(fmt.Sprintf("pods at %d/s: rate that was reached", rate),
			float64(count)/took.Seconds(), 0, "/s")
		b.row("a pod to each copy, p50", percentile(pods, 0.5), 0, "ms")
		b.row("p99", percentile(pods, 0.99), 0, "ms")
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// follow reads everything, then watches.
func (w *watchers) follow(ctx context.Context, dir string, ready func()) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.EndpointIn(dir)},
		Logger: zap.NewNop()})
	if err != nil {
		ready()
		return err
	}
	defer c.Close()
	all, err := c.Get(ctx, cluster.Root, clientv3.WithPrefix())
	ready()
	if err != nil {
		return err
	}
	last := all.Header.Revision
	for r := range c.Watch(ctx, cluster.Root, clientv3.WithPrefix(),
		clientv3.WithRev(all.Header.Revision+1)) {
		if len(r.Events) > 0 {
			w.bench.begun.note(w.times, last, r.Header.Revision, time.Now())
			last = r.Header.Revision
		}
	}
	return ctx.Err()
}
