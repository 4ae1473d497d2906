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
	return b.TakeTime(r.Every, time.Duration(r.Burst)*r.Every, now)
}

// TakeTime takes what refills in a time, if it is there. depth is what an empty bucket takes to be
// full again. More than a whole bucket is there when it is full; the bucket owes the rest then.
func (b Bucket) TakeTime(cost, depth, now time.Duration) (after Bucket, ok bool) {
	full := max(time.Duration(b), now)
	if full-now > max(depth-cost, 0) {
		return b, false
	}
	return Bucket(full + cost), true
}

// Full reports whether the bucket is as good as a new one.
func (b Bucket) Full(now time.Duration) bool { return time.Duration(b) <= now }
