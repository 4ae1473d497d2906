package members_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/internal/pipenet"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
)

// TestClockOfAnotherTime: with a clock twenty and more years behind, a cluster is founded, hosts
// join, follow, write and are removed, and tokens end after their hour. The clock is that of a
// bubble of synctest: it begins in the year 2000.
func TestClockOfAnotherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if year := time.Now().Year(); year != 2000 {
			t.Fatalf("it is %d", year)
		}
		p := pipenet.Listen()
		f := foundAt(t, p, p.Dial, pool("10.64.0.0/16", 24))
		a, b := f.join(t, "a"), f.join(t, "b")
		host, other := f.connect(t, a.Credential), f.connect(t, b.Credential)

		ctx, cancel := context.WithCancel(t.Context())
		copied, ended := store.NewCopy(store.Snapshot{}), make(chan struct{})
		arrived := make(chan bool, 1)
		go func() {
			defer close(ended)
			_ = other.Follow(ctx, client.Follow{Copy: func() *store.Copy { return copied },
				Step: func(b store.Batch) error {
					copied.Apply(b)
					if e, ok := copied.Get(cluster.PodsTree + "a/0000"); ok &&
						string(e.Value) == "1" {
						select {
						case arrived <- true:
						default:
						}
					}
					return nil
				}, Epoch: func() uint64 { return 1 }, Failed: func(error) {}})
		}()
		if _, err := host.Commit(t.Context(), put(cluster.PodsTree+"a/0000", "1")); err != nil {
			t.Fatal(err)
		}
		<-arrived
		cancel()
		<-ended

		expiry := &members.TokenExpiry{Store: f.model, Now: time.Now, Log: func(err error) {
			t.Error(err)
		}}
		ctx, cancel = context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = expiry.Run(ctx)
		}()
		token := f.invite(t, members.Invitation{})
		time.Sleep(59 * time.Minute)
		if _, there := f.value(t, cluster.InviteTree+token.Name()); !there {
			t.Error("a token ended before its hour")
		}
		time.Sleep(2 * time.Minute)
		if _, there := f.value(t, cluster.InviteTree+token.Name()); there {
			t.Error("a token is valid for longer than its hour")
		}
		cancel()
		<-done

		if err := members.Remove(t.Context(), f.model, "a", f.remover()); err != nil {
			t.Fatal(err)
		}
		if _, err := host.Commit(t.Context(), put(cluster.PodsTree+"a/0000", "2")); err == nil {
			t.Error("a removed host writes")
		}
	})
}
