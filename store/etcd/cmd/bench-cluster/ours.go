package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/etcd"
	"github.com/weirnet/weir/store/wire"
)

// ours measures weir-store.
func (b *bench) ours() error {
	d, err := etcd.Open(etcd.Config{Client: clientv3.Config{
		Endpoints: []string{etcd.EndpointIn(filepath.Join(b.dir, "store", "etcd"))}}})
	if err != nil {
		return err
	}
	defer d.Close()
	f, err := b.newFleet(d)
	if err != nil {
		return err
	}
	last, err := b.fill(d)
	if err != nil {
		return err
	}
	for _, part := range []func(*fleet, store.Store, int64) error{b.begins, b.idle, b.policy,
		b.churn, b.replaced, b.away, b.joins, b.one} {
		warm()
		if err := part(f, d, last); err != nil {
			return err
		}
	}
	return nil
}

// warm takes as much memory from the kernel as the hosts have, and frees it for them. Each is a
// process of its own outside of this measurement, and has the memory already that it needs for a
// change. Here a thousand of them would fault pages in for hundreds of thousands of changes.
func warm() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	pages := make([][]byte, m.HeapInuse/4096)
	for i := range pages {
		pages[i] = make([]byte, 4096)
		pages[i][0] = 1
	}
	runtime.KeepAlive(pages)
	pages = nil
	runtime.GC()
}

// begins measures hosts that have nothing, and all that come back with what they have.
func (b *bench) begins(f *fleet, _ store.Store, last int64) error {
	time.Sleep(500 * time.Millisecond) // weir-store has what was written
	heading("All hosts begin at once")
	for _, what := range []string{"with nothing", "again, with their copies"} {
		used, err := cpu(b.store.Process.Pid)
		if err != nil {
			return err
		}
		f.bytes.Store(0)
		begin := time.Now()
		if err := f.start(); err != nil {
			return err
		}
		if _, err := f.current(last); err != nil {
			return err
		}
		took := time.Since(begin)
		now, err := cpu(b.store.Process.Pid)
		if err != nil {
			return err
		}
		timeBar, cpuBar := 0.0, 0.0
		if what != "with nothing" {
			timeBar, cpuBar = 3, 2
		}
		b.row("all are current, "+what, took.Seconds(), timeBar, "s")
		b.row("processor time of weir-store", (now - used).Seconds(), cpuBar, "s")
		b.row("bytes to a host, certificates of all hosts and TLS included",
			float64(f.bytes.Load())/float64(b.whole)/1000, 0, "kB")
		if what == "with nothing" {
			b.row("of it the pods", b.packedPods(f)/1000, 200, "kB")
			f.stop()
			time.Sleep(time.Second)
		}
	}
	return f.startLight()
}

// packedPods returns how many bytes the pods of a copy take on the wire.
func (b *bench) packedPods(f *fleet) float64 {
	size := 0
	all := f.hosts[0].copy.Stored()
	for first := 0; first < store.Buckets; first += 16 {
		var group []wire.Bucket
		for i := first; i < first+16; i++ {
			of := wire.Bucket{Index: i}
			for _, e := range all.Bucket(i) {
				if strings.HasPrefix(e.Key, cluster.PodsTree) {
					of.Entries = append(of.Entries, e)
				}
			}
			group = append(group, of)
		}
		size += len(wire.CopyParts(group))
	}
	return float64(size)
}

// idle measures a store in which nothing changes.
func (b *bench) idle(*fleet, store.Store, int64) error {
	heading("Nothing changes")
	wait := 20 * time.Second
	if b.quick {
		wait = 6 * time.Second
	}
	before, err := cpu(b.store.Process.Pid)
	if err != nil {
		return err
	}
	time.Sleep(wait)
	after, err := cpu(b.store.Process.Pid)
	if err != nil {
		return err
	}
	resident, err := memory(b.store.Process.Pid)
	if err != nil {
		return err
	}
	b.row("weir-store with its etcd", 100*(after-before).Seconds()/wait.Seconds(), 3,
		"% of a core")
	b.row("resident memory", float64(resident)/1e6, 150, "MB")
	return nil
}

func (b *bench) rounds() int {
	if b.quick {
		return 10
	}
	return 50
}

// policy measures how long a version of the rules takes to all hosts.
func (b *bench) policy(f *fleet, d store.Store, _ int64) error {
	b.take(f.times)
	err := b.heads(context.Background(), d, b.rounds(), 100*time.Millisecond,
		func(revision int64) error {
			_, err := f.current(revision)
			return err
		})
	if err != nil {
		return err
	}
	times := b.take(f.times)["head"]
	heading("A version of the rules (4 KiB), from its transaction to each copy")
	b.row("p50", percentile(times, 0.5), 30, "ms")
	b.row("p99", percentile(times, 0.99), 150, "ms")
	return nil
}

// churn measures pod changes at a rate, and versions meanwhile.
func (b *bench) churn(f *fleet, d store.Store, _ int64) error {
	for _, rate := range []int{100, 300, 1000} {
		b.take(f.times)
		f.bytes.Store(0)
		before, err := b.spent()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		failed := make(chan error, 1)
		go func() { failed <- b.heads(ctx, d, 1<<30, time.Second, noCheck) }()
		count := b.rounds() * rate / 10
		took, err := b.write(d, rate, 1, count)
		cancel()
		if err := errors.Join(err, <-failed); err != nil {
			return err
		}
		after, err := b.spent()
		if err != nil {
			return err
		}
		time.Sleep(time.Second)
		times := b.take(f.times)
		heading(fmt.Sprintf("Pods that change, %d/s each alone, and a version each second", rate))
		targets := []float64{30, 150, 250, 300}
		if rate != 100 {
			targets = make([]float64, 4)
		}
		b.row("rate that was reached", float64(count)/took.Seconds(), 0, "/s")
		b.row("a pod to each copy, p50", percentile(times["pods"], 0.5), targets[0], "ms")
		b.row("p99", percentile(times["pods"], 0.99), targets[1], "ms")
		b.row("a version to each copy, p99", percentile(times["head"], 0.99), targets[2], "ms")
		b.row("bytes to a host for each change, versions included",
			float64(f.bytes.Load())/float64(b.hosts)/float64(count), targets[3], "B")
		b.row("weir-store with its etcd",
			100*(after.store-before.store).Seconds()/took.Seconds(), 0, "% of a core")
		if err := b.rowsOfChange(before, count); err != nil {
			return err
		}
	}
	return nil
}

// replaced measures how far behind a host is while pods are replaced at 1,000/s.
func (b *bench) replaced(f *fleet, d store.Store, _ int64) error {
	b.take(f.times)
	begin, err := b.spent()
	if err != nil {
		return err
	}
	// What hosts gather in 20 ms.
	took, err := b.write(d, 1000, 20, b.pods)
	if err != nil {
		return err
	}
	err = b.heads(context.Background(), d, 1, 0, func(revision int64) error {
		_, err := f.current(revision)
		return err
	})
	if err != nil {
		return err
	}
	times := b.take(f.times)["pods"]
	heading(fmt.Sprintf("%d pods are replaced at 1,000/s, 20 in a transaction", b.pods))
	b.row("written", took.Seconds(), 15, "s")
	b.row("behind, p50", percentile(times, 0.5), 0, "ms")
	b.row("p99", percentile(times, 0.99), 0, "ms")
	b.row("at most", percentile(times, 1), 1000, "ms")
	return b.rowsOfChange(begin, b.pods)
}
