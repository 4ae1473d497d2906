package flow

import (
	"math/rand/v2"
	"testing"
	"time"
)

// tokens is a bucket that is refilled token by token.
type tokens struct {
	have uint32
	next time.Duration // when the next token comes, while it is not full
}

func (t *tokens) take(r Rate, now time.Duration) bool {
	for t.have < r.Burst && t.next <= now {
		t.have++
		t.next += r.Every
	}
	if t.have == 0 {
		return false
	}
	if t.have == r.Burst {
		t.next = now + r.Every
	}
	t.have--
	return true
}

// TestBucket: a Bucket decides as the bucket of tokens does, at any times.
func TestBucket(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		rate := Rate{Every: time.Duration(1 + r.IntN(50)), Burst: uint32(1 + r.IntN(6))}
		var b Bucket
		model := tokens{have: rate.Burst}
		now, passed := time.Duration(0), uint32(0)
		for range 300 {
			now += time.Duration(r.IntN(2 * int(rate.Every)))
			full := b.Full(now)
			after, ok := b.Take(rate, now)
			if want := model.take(rate, now); ok != want {
				t.Fatalf("%+v at %d: %t", rate, now, ok)
			}
			if full && !ok || !ok && after != b {
				t.Fatalf("%+v at %d: a full bucket has no token, or one without loses some", rate,
					now)
			}
			b = after
			if ok {
				passed++
			}
			if most := rate.Burst + uint32(now/rate.Every); passed > most {
				t.Fatalf("%+v: %d at %d, at most %d", rate, passed, now, most)
			}
		}
	}
}
