package proxy

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// Bounds of the work that guesses cost.
const (
	maxKnown    = 4096 // passwords that were right, remembered
	maxGuessers = 4096 // addresses with wrong passwords, remembered
	// wrong passwords of an address that cost it nothing but their check
	freeGuesses = 3
	guessPause  = time.Second      // doubled by each further one
	maxPause    = 30 * time.Second // at most
)

// users checks passwords against bcrypt hashes. A right one is remembered by a keyed hash, so that
// it costs its bcrypt once. An address with wrong ones has to wait longer after each; meanwhile its
// new guesses are refused without a look. One check runs at a time: guesses take at most one
// processor.
type users struct {
	key [32]byte
	one chan struct{} // holds the turn to check

	mu       sync.Mutex
	known    map[[32]byte]struct{}    // guarded by mu
	guessers map[netip.Prefix]guesser // guarded by mu
}

type guesser struct {
	wrong int
	until time.Time
}

func newUsers() *users {
	u := &users{one: make(chan struct{}, 1), known: map[[32]byte]struct{}{},
		guessers: map[netip.Prefix]guesser{}}
	rand.Read(u.key[:])
	return u
}

// source is what a client can change at no cost: an IPv4 address, or an IPv6 /64.
func source(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.WithZone("").Prefix(bits) // of an invalid address: the zero prefix
	return p
}

// noUser is a hash of nothing that anyone knows: an unknown user takes as long as a known one.
var noUser = sync.OnceValue(func() []byte {
	secret := make([]byte, 16)
	rand.Read(secret)
	hash, err := bcrypt.GenerateFromPassword(secret, bcrypt.DefaultCost)
	if err != nil {
		return nil // then every comparison fails
	}
	return hash
})

// allowed compares a password with a user's hash.
func (u *users) allowed(ctx context.Context, hashes map[string]string, from netip.Addr, user,
	pass string, now func() time.Time) bool {
	mac := hmac.New(sha256.New, u.key[:])
	mac.Write([]byte(user + "\x00" + pass))
	id := [32]byte(mac.Sum(nil))
	who := source(from)
	u.mu.Lock()
	_, known := u.known[id]
	g := u.guessers[who]
	u.mu.Unlock()
	if known {
		return true
	}
	if now().Before(g.until) {
		return false
	}
	select {
	case u.one <- struct{}{}:
		defer func() { <-u.one }()
	case <-ctx.Done():
		return false
	}
	hash, there := hashes[user]
	want := []byte(hash)
	if !there {
		want = noUser()
	}
	right := bcrypt.CompareHashAndPassword(want, []byte(pass)) == nil && there
	u.mu.Lock()
	defer u.mu.Unlock()
	if right {
		if len(u.known) >= maxKnown {
			clear(u.known)
		}
		u.known[id] = struct{}{}
		delete(u.guessers, who)
		return true
	}
	u.wrongLocked(who, now())
	return false
}

// wrongLocked notes a wrong password of a source.
func (u *users) wrongLocked(who netip.Prefix, now time.Time) {
	if len(u.guessers) >= maxGuessers {
		for p, g := range u.guessers { // those whose time is over; any other if there is none
			if now.After(g.until) || len(u.guessers) >= maxGuessers {
				delete(u.guessers, p)
			}
		}
	}
	g := u.guessers[who]
	g.wrong++
	if over := g.wrong - freeGuesses; over > 0 {
		g.until = now.Add(min(guessPause<<min(over-1, 10), maxPause))
	}
	u.guessers[who] = g
}
