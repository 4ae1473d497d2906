package flow

import "time"

// Rate is how often something may happen: once per Every on average, and Burst times at once.
type Rate struct {
	Every time.Duration // more than 0
	Burst uint32        // at least 1
}

// Bucket is a token bucket in the form of GCRA (ITU-T I.371): the time at which it is full again.
// The zero value is full at any time that is not negative.
type Bucket time.Duration

// Take takes a token, if there is one, and returns the bucket after that.
func (b Bucket) Take(r Rate, now time.Duration) (after Bucket, ok bool) {
	return b.TakeTime(r.Every, time.Duration(r.Burst)*r.Every, now)
}

// TakeTime takes the amount that refills in the given time, if the bucket holds it. depth is the
// time in which an empty bucket refills. From a full bucket more than depth can be taken; its
// content is then negative.
func (b Bucket) TakeTime(cost, depth, now time.Duration) (after Bucket, ok bool) {
	full := max(time.Duration(b), now)
	if full-now > max(depth-cost, 0) {
		return b, false
	}
	return Bucket(full + cost), true
}

// Full reports whether the bucket is full, like a new one.
func (b Bucket) Full(now time.Duration) bool { return time.Duration(b) <= now }
