package server

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/wire"
)

// TestUnsentIsBounded: hosts that ask for the difference and do not take it, while the store
// changes, keep no more than twice a copy in weir-store's memory. The slowest end, not those that
// have just begun.
func TestUnsentIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := identity.NewCA("test")
		if err != nil {
			t.Fatal(err)
		}
		s, p := serveLarge(t, ca) // a copy of 512 KiB
		s.state.unsent.most = 2 << 20
		random := rand.NewChaCha8([32]byte{1})
		change := func() {
			value := make([]byte, 1<<19)
			random.Read(value)
			if _, err := s.config.Store.Commit(t.Context(), store.Txn{Put: []store.Entry{
				{Key: "w/x", Value: value}}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		const stolen = 16
		for i := range stolen {
			if got := begin(t, p, hostOf(t, ca, fmt.Sprint("b", i))); got != wire.TypeCopy {
				t.Errorf("stolen host %d gets a frame of type %d", i, got)
			}
			time.Sleep(500 * time.Millisecond) // of the bubble
			change()
		}
		if n := len(s.differences); n > 4 {
			t.Errorf("%d hosts keep 512 KiB each", n)
		}
		if n := s.Counters.Slow.Load(); n < stolen-4 {
			t.Errorf("%d connections have ended", n)
		}
		conn := dialAs(t, p, hostOf(t, ca, "c"))
		if got := ask(t, conn); got != wire.TypeCopy {
			t.Fatalf("a host gets a frame of type %d", got)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1<<19)); err != nil {
			t.Errorf("a host does not get what it takes: %v", err)
		}
	})
}

// TestUnsentCounts: what several connections have to write counts once, until the last one has
// written it or ends.
func TestUnsentCounts(t *testing.T) {
	u := newUnsent(100)
	a, b := &conn{}, &conn{}
	parts := []*part{{}, {}}
	u.packed(&parts[0].block, 10)
	u.hold(a, blocksOf(parts))
	u.hold(b, blocksOf(parts))
	u.hold(b, blocksOf(parts[:1]))
	u.packed(&parts[1].block, 20)
	expect := func(what string, want int) {
		t.Helper()
		if u.size != want {
			t.Errorf("%s: %d bytes, want %d", what, u.size, want)
		}
	}
	expect("two have both", 30)
	u.written(a, &parts[0].block)
	u.written(a, &parts[0].block)
	expect("one has written one", 30)
	u.written(b, &parts[0].block)
	expect("both have written one", 20)
	u.release(a)
	u.release(b)
	u.release(b)
	if expect("all have ended", 0); len(u.of) > 0 {
		t.Errorf("%d connections are kept", len(u.of))
	}
}

// TestUnsentAnswers: hosts that read and do not take the answers keep no more than the bound.
func TestUnsentAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := identity.NewCA("test")
		if err != nil {
			t.Fatal(err)
		}
		s, p := serveLarge(t, ca) // a value of 512 KiB
		s.state.unsent.most = 2 << 20
		const stolen = 8
		for i := range stolen {
			conn := dialAs(t, p, hostOf(t, ca, fmt.Sprint("b", i)))
			if _, err := conn.Write(wire.Hello{}.Encode()); err != nil {
				t.Fatal(err)
			}
			if _, _, err := wire.ReadFrame(conn, wire.MaxFrame); err != nil { // welcome
				t.Fatal(err)
			}
			_, err = conn.Write(wire.Read{Number: 1, Name: "w/x"}.Encode())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // it has begun to write the answer
		}
		if n := s.Counters.Slow.Load(); n < stolen-4 {
			t.Errorf("%d connections have ended", n)
		}
	})
}
