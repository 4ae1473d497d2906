package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/identity"
)

// joining is how many hosts join at once.
const joining = 100

// joins measures hosts that join at once, with one token. No two may get the same range.
func (b *bench) joins(*fleet, store.Store, int64) error {
	out, err := b.weirStore("invite", "-uses", fmt.Sprint(joining), "-role", "web").Output()
	if err != nil {
		return fmt.Errorf("invite: %w", err)
	}
	text, address, _ := strings.Cut(strings.TrimSpace(string(out)), "@")
	token, err := identity.ParseToken(text)
	if err != nil {
		return err
	}
	took := make([]time.Duration, joining)
	ranges := make([][]netip.Prefix, joining)
	failed := make(chan error, joining)
	var all sync.WaitGroup
	for i := range joining {
		all.Go(func() {
			key, err := identity.NewKey()
			if err != nil {
				failed <- err
				return
			}
			j := client.Join{Token: token, Address: address, Name: fmt.Sprint("new", i), Key: key,
				WireGuardKey: [32]byte{1, byte(i)}, Dial: new(net.Dialer).DialContext}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			begin := time.Now()
			joined, err := j.Do(ctx)
			took[i] = time.Since(begin)
			if err == nil {
				ranges[i] = joined.Ranges
			}
			failed <- err
		})
	}
	all.Wait()
	for range joining {
		if err := <-failed; err != nil {
			return fmt.Errorf("join: %w", err)
		}
	}
	given := slices.Concat(ranges...)
	slices.SortFunc(given, netip.Prefix.Compare)
	if n := len(slices.Compact(slices.Clone(given))); n != joining {
		return fmt.Errorf("%d hosts have %d ranges", joining, n)
	}
	heading(fmt.Sprintf("%d hosts join at once, each with a range of its own", joining))
	b.row("p50", percentile(took, 0.5)/1000, 0, "s")
	b.row("the last", percentile(took, 1)/1000, 2, "s")
	return nil
}

// away measures hosts that come back after 10,000 changes.
func (b *bench) away(f *fleet, d store.Store, _ int64) error {
	f.stop()
	if _, err := b.write(d, 1<<20, 20, 10000); err != nil {
		return err
	}
	e, err := b.head()
	if err != nil {
		return err
	}
	last, err := b.commit(d, "head", store.Txn{Put: []store.Entry{e}})
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := f.start(); err != nil {
		return err
	}
	if _, err := f.current(last); err != nil {
		return err
	}
	heading("All hosts return after 10,000 changes")
	b.row("all are current", time.Since(begin).Seconds(), 2, "s")
	b.take(f.times)
	return nil
}
