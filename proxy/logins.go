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

// Bounds of the work that guessed passwords cause.
const (
	maxVerified = 4096 // right passwords that are remembered
	maxSources  = 4096 // sources of wrong passwords that are remembered
	// wrong passwords of a source before it has to wait
	freeFailures = 3
	failurePause = time.Second      // doubled by each further one
	maxPause     = 30 * time.Second // at most
)

// loginCheck checks passwords against bcrypt hashes. It remembers a right one by a keyed hash, so
// that bcrypt runs once for it. A source of wrong ones has to wait, longer after each. Meanwhile
// its passwords are refused unchecked, except remembered ones. One check runs at a time: guesses
// take at most one processor.
type loginCheck struct {
	key  [32]byte
	turn chan struct{} // held by the running check

	mu       sync.Mutex
	verified map[[32]byte]struct{}    // guarded by mu
	failures map[netip.Prefix]failure // guarded by mu
}

type failure struct {
	count int
	until time.Time
}

func newLoginCheck() *loginCheck {
	u := &loginCheck{turn: make(chan struct{}, 1), verified: map[[32]byte]struct{}{},
		failures: map[netip.Prefix]failure{}}
	rand.Read(u.key[:])
	return u
}

// source returns the prefix in which a client can change its address at no cost: an IPv4 address,
// or an IPv6 /64.
func source(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.WithZone("").Prefix(bits) // the zero prefix for an invalid address
	return p
}

// noUser is the hash of a random secret: the check of an unknown user takes as long as that of a
// known one.
var noUser = sync.OnceValue(func() []byte {
	secret := make([]byte, 16)
	rand.Read(secret)
	hash, err := bcrypt.GenerateFromPassword(secret, bcrypt.DefaultCost)
	if err != nil {
		return nil // then every comparison fails
	}
	return hash
})

// allowed reports whether a password is the user's.
func (u *loginCheck) allowed(ctx context.Context, hashes map[string]string, from netip.Addr, user,
	pass string, now func() time.Time) bool {
	mac := hmac.New(sha256.New, u.key[:])
	mac.Write([]byte(user + "\x00" + pass))
	id := [32]byte(mac.Sum(nil))
	src := source(from)
	if known, wait := u.lookUp(id, src, now); known || wait {
		return known
	}
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
	case <-ctx.Done():
		return false
	}
	// Others of this source may have been checked meanwhile.
	if known, wait := u.lookUp(id, src, now); known || wait {
		return known
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
		if len(u.verified) >= maxVerified {
			clear(u.verified)
		}
		u.verified[id] = struct{}{}
		delete(u.failures, src)
		return true
	}
	u.recordFailureLocked(src, now())
	return false
}

// lookUp reports whether a password was right before, and whether its source has to wait.
func (u *loginCheck) lookUp(id [32]byte, src netip.Prefix, now func() time.Time) (known,
	wait bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, known = u.verified[id]
	return known, now().Before(u.failures[src].until)
}

// recordFailureLocked records a wrong password of a source.
func (u *loginCheck) recordFailureLocked(src netip.Prefix, now time.Time) {
	if len(u.failures) >= maxSources {
		for p, g := range u.failures { // the expired ones; any other if there are none
			if now.After(g.until) || len(u.failures) >= maxSources {
				delete(u.failures, p)
			}
		}
	}
	g := u.failures[src]
	g.count++
	if over := g.count - freeFailures; over > 0 {
		g.until = now.Add(min(failurePause<<min(over-1, 10), maxPause))
	}
	u.failures[src] = g
}
