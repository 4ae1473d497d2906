package server

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/identity"
)

// TestReadsWait: a stolen host that reads over and over waits, and keeps etcd busy for others by a
// bounded part only: small reads and large answers count. Other hosts do not wait.
func TestReadsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, model := follow(t)
		for i := range 4 {
			put(t, model, fmt.Sprint("x/", i), 1<<19)
		}
		by := Admission{Reads: Budget{Rate: 1 << 20, Burst: 1 << 20}}
		read := func(c *conn, name string) time.Duration {
			began := time.Now()
			if _, err := (&admitted{Store: model, conn: c}).Read(t.Context(), name, 0); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		stolen := &conn{server: s, admitted: by}
		again := &conn{server: s, admitted: by} // another connection of the certificate
		other := &conn{server: s, admitted: by}
		other.peer.Serial = identity.Serial{1}
		took := time.Duration(0)
		for range 500 {
			took += read(stolen, "w/a") + read(again, "w/a")
		}
		if took < 2900*time.Millisecond || s.Counters.Throttled.Load() == 0 {
			t.Errorf("1,000 reads took %v", took)
		}
		time.Sleep(time.Minute) // of the bubble
		if took := read(stolen, "x/"); took > 0 {
			t.Errorf("a read after a pause took %v", took)
		}
		if took := read(other, "x/0"); took > 0 {
			t.Errorf("another host has waited for %v", took)
		}
		for range 30 { // more than the time of silence
			stolen.charge(by.Reads, store.Snapshot{Entries: make([]store.Entry, 1<<20)})
		}
		_, err := (&admitted{Store: model, conn: stolen}).Read(t.Context(), "w/a", 0)
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a read of one who has read too much: %v", err)
		}
	})
}
