package flow

import "time"

// Rate is how often something may happen: once in Every on average, and Burst times at once.
type Rate struct {
	Every time.Duration // more than 0
	Burst uint32        // at least 1
}

// Bucket is a token bucket as GCRA has it (ITU-T I.371): the time at which it is full again. The
// zero value is full at any time that is not negative.
type Bucket time.Duration

// Take takes a token, if there is one, and returns the bucket after that.
func (b Bucket) Take(r Rate, now time.Duration) (after Bucket, ok bool) {
	full := max(time.Duration(b), now)
	if full-now > time.Duration(r.Burst-1)*r.Every {
		return b, false
	}
	return Bucket(full + r.Every), true
}

// Full reports whether the bucket is as good as a new one.
func (b Bucket) Full(now time.Duration) bool { return time.Duration(b) <= now }
