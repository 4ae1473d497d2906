package watch

import "slices"

const (
	// sampleCount is how many samples are kept: an hour of them.
	sampleCount = 720
	// maxSeries is how many rules have samples of their own, and how many pods. One takes 6 KiB or
	// 12 KiB.
	maxSeries = 256
	// silentSamples is how long a rule or a pod has counted nothing when another one may take its
	// place: a minute.
	silentSamples = 12
)

// columns are values by sample, in a ring: the sample with number n is at n % sampleCount.
type columns [][]float32

func newColumns(n int) columns {
	c := make(columns, n)
	for i := range c {
		c[i] = make([]float32, sampleCount)
	}
	return c
}

// put sets the values of a sample.
func (c columns) put(n uint64, values []float32) {
	for i := range c {
		c[i][n%sampleCount] = values[i]
	}
}

// add adds to the values of a sample.
func (c columns) add(n uint64, values []float32) {
	for i := range c {
		c[i][n%sampleCount] += values[i]
	}
}

// from returns a copy of the samples with numbers from first to end-1.
func (c columns) from(first, end uint64) columns {
	all := make(columns, len(c))
	for i := range c {
		all[i] = make([]float32, 0, end-first)
		for n := first; n < end; n++ {
			all[i] = append(all[i], c[i][n%sampleCount])
		}
	}
	return all
}

// isZero reports whether there is no value but 0.
func (c columns) isZero() bool {
	for i := range c {
		if slices.ContainsFunc(c[i], func(v float32) bool { return v != 0 }) {
			return false
		}
	}
	return true
}

// series are the samples of one rule or pod.
type series[L any] struct {
	label  L
	values columns
	last   uint64 // number of the last sample that is not 0
}

// group are the series of things that come and go, by key. Its memory is bounded: what finds no
// space is added to the others.
type group[K comparable, L any] struct {
	width  int
	of     map[K]*series[L]
	others columns
	left   uint64 // samples that went to the others
	busy   bool   // none was silent in this sample: the search for one is not repeated
}

func newGroup[K comparable, L any](width int) group[K, L] {
	return group[K, L]{width: width, of: map[K]*series[L]{}, others: newColumns(width)}
}

// begin clears the places of sample n, which hold a sample of an hour ago, and forgets what has
// counted nothing since.
func (g *group[K, L]) begin(n uint64) {
	zero := make([]float32, g.width)
	g.busy = false
	g.others.put(n, zero)
	for key, s := range g.of {
		if s.last+sampleCount <= n {
			delete(g.of, key)
			continue
		}
		s.values.put(n, zero)
	}
}

// count adds values to sample n of a key. label is called when the key gets its space.
func (g *group[K, L]) count(n uint64, key K, values []float32, label func() L) {
	if !slices.ContainsFunc(values, func(v float32) bool { return v != 0 }) {
		return
	}
	s := g.of[key]
	if s == nil {
		if len(g.of) >= maxSeries && !g.busy {
			g.busy = !g.evict(n)
		}
		if len(g.of) >= maxSeries {
			g.left++
			g.others.add(n, values)
			return
		}
		s = &series[L]{label: label(), values: newColumns(g.width)}
		g.of[key] = s
	}
	s.last = n
	s.values.add(n, values)
}

// evict removes the series that has been silent for longest, if one is silent at all.
func (g *group[K, L]) evict(n uint64) bool {
	var key K
	oldest := n
	for k, s := range g.of {
		if s.last < oldest {
			key, oldest = k, s.last
		}
	}
	if oldest+silentSamples > n {
		return false
	}
	delete(g.of, key)
	return true
}
