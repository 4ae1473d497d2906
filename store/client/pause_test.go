package client_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
)

// TestStoreReturns: a host whose store was unreachable for long has what the store has soon
// after its return, with the longest pauses that chance may give.
func TestStoreReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPiped(t, "h/", silence)
		w.put(t, "h/a", "1")
		name, config := w.newHost(t, nil)
		var away atomic.Bool
		away.Store(true)
		c, err := client.New(client.Config{Name: name, Cluster: "test", TLS: config,
			Stores: func() []string { return []string{w.proxy.Address} },
			Random: func() float64 { return 0.999999 },
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if away.Load() {
					return nil, errors.New("connection refused")
				}
				return w.dial(ctx, network, address)
			}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed, arrived := make(chan error, 100), make(chan time.Time, 1)
		ended := make(chan error, 1)
		t.Cleanup(func() {
			cancel()
			<-ended
			c.Close()
		})
		copied := store.NewCopy(store.Snapshot{})
		go func() {
			ended <- c.Follow(ctx, client.Follow{Copy: func() *store.Copy { return copied },
				Step: func(b store.Batch) error {
					arrived <- time.Now()
					<-ctx.Done()
					return nil
				},
				Failed: func(err error) { failed <- err }})
		}()
		for range 7 { // 0.2, 0.4, 0.8 s; unbounded, the last three would be 1.6, 3.2 and 6.4 s
			<-failed
		}
		away.Store(false)
		began := time.Now()
		if took := (<-arrived).Sub(began); took > 1500*time.Millisecond {
			t.Errorf("the host has what the store has %v after its return", took)
		}
	})
}

// TestPause: pauses after a store that cannot be reached are bounded. One that answers and fails is
// spared.
func TestPause(t *testing.T) {
	w := newSteady(t, "h/")
	_, config := w.newHost(t, nil)
	fails := func(dial func(context.Context, string, string) (net.Conn, error)) error {
		c, err := client.New(client.Config{TLS: config, Dial: dial,
			Stores: func() []string { return []string{w.proxy.Address} }})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Read(t.Context(), "h/", 0)
		return err
	}
	unreached := fails(func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no route")
	})
	answered := fails(func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		return ours, theirs.Close()
	})
	for _, err := range []error{unreached, answered} {
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	}
	if p := client.Pause(100, unreached, 0.5); p != 750*time.Millisecond {
		t.Errorf("after a store that cannot be reached: %v", p)
	}
	if p := client.Pause(1, unreached, 0.5); p != 100*time.Millisecond {
		t.Errorf("after its first failure: %v", p)
	}
	if p := client.Pause(100, answered, 0.5); p != 15*time.Second {
		t.Errorf("after a store that answers and fails: %v", p)
	}
}
