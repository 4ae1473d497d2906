package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// hashed returns Users with one user, whose hash is cheap to check.
func hashed(name, pass string) map[string]string {
	hash, err := bcrypt.GenerateFromPassword([]byte(pass), bcrypt.MinCost)
	if err != nil {
		panic(err)
	}
	return map[string]string{name: string(hash)}
}

// TestGuesses: a source of wrong passwords has to wait, longer each time. Other sources do not. A
// password that was right once stays right.
func TestGuesses(t *testing.T) {
	u, hashes := newLoginCheck(), hashed("ann", "secret")
	now := time.Unix(1000, 0)
	try := func(from, pass string) bool {
		return u.allowed(context.Background(), hashes, netip.MustParseAddr(from), "ann", pass,
			func() time.Time { return now })
	}
	const guesser, same, other = "2001:db8::1", "2001:db8::2", "192.0.2.1"
	if !try(same, "secret") {
		t.Fatal("the right password is refused")
	}
	hashes["bob"] = hashes["ann"]
	bob := func(from string) bool {
		return u.allowed(context.Background(), hashes, netip.MustParseAddr(from), "bob", "secret",
			func() time.Time { return now })
	}
	for range freeFailures + 1 {
		if try(guesser, "wrong") {
			t.Fatal("a wrong password is right")
		}
	}
	if bob(guesser) || bob(same) {
		t.Error("the guesser's /64 need not wait")
	}
	if !try(same, "secret") || !bob(other) {
		t.Error("others wait with the guesser")
	}
	delete(hashes, "unknown")
	now = now.Add(failurePause)
	if try(guesser, "wrong again") {
		t.Fatal("a wrong password is right")
	}
	hashes["eve"] = hashes["ann"]
	eve := func() bool {
		return u.allowed(context.Background(), hashes, netip.MustParseAddr(guesser), "eve",
			"secret", func() time.Time { return now })
	}
	if now = now.Add(2*failurePause - 1); eve() {
		t.Error("the second wait is not longer than the first")
	}
	if now = now.Add(1); !eve() {
		t.Error("the wait does not end")
	}
}

// TestGuessesAtOnce: a source has to wait even if it sends all guesses before the first one is
// checked.
func TestGuessesAtOnce(t *testing.T) {
	u, hashes := newLoginCheck(), hashed("ann", "secret")
	from := netip.MustParseAddr("192.0.2.1")
	const guesses = 20
	asked := make(chan struct{}, 10*guesses)
	now := func() time.Time { // each guess looks at the clock before it waits for its turn
		asked <- struct{}{}
		return time.Unix(1000, 0)
	}
	u.turn <- struct{}{}
	var wait sync.WaitGroup
	for n := range guesses {
		wait.Go(func() {
			u.allowed(context.Background(), hashes, from, "ann", fmt.Sprint(n), now)
		})
	}
	for range guesses {
		<-asked
	}
	<-u.turn
	wait.Wait()
	if n := u.failures[source(from)].count; n != freeFailures+1 {
		t.Errorf("%d guesses were checked", n)
	}
}

// TestFailuresAreBounded: the memory for sources of wrong passwords has a limit.
func TestFailuresAreBounded(t *testing.T) {
	u := newLoginCheck()
	for n := range 3 * maxSources {
		u.recordFailureLocked(source(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8),
			byte(n)})),
			time.Unix(int64(n), 0))
	}
	if len(u.failures) > maxSources {
		t.Errorf("%d sources are remembered", len(u.failures))
	}
}
