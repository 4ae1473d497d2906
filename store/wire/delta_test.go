package wire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/store"
)

// list returns a document of some objects.
func list(numbers ...int) []byte {
	var objects []string
	for _, n := range numbers {
		objects = append(objects, fmt.Sprintf(`{"name":"pod-%04d","addrs":["10.1.%d.%d"],"labels":`+
			`{"app":"web","tier":"front"}}`, n, n/200, n%200))
	}
	return []byte(`{"version":1,"pods":[` + strings.Join(objects, ",") + `]}`)
}

// some returns each number below a limit with a chance of one in two.
func some(random *rand.Rand, limit int) (numbers []int) {
	for n := range limit {
		if random.IntN(2) == 0 {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// TestDeltas: a delta makes of a value exactly the next one, whatever both are, and is never much
// longer than the next one.
func TestDeltas(t *testing.T) {
	seed := testrand.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	noise := func() []byte {
		b := make([]byte, random.IntN(80))
		for i := range b {
			b[i] = `ab{}",`[random.IntN(6)]
		}
		return b
	}
	var last []byte
	for range 4000 {
		var next []byte
		switch random.IntN(4) {
		case 0:
			next = list(some(random, 40)...)
		case 1:
			next = noise()
		case 2: // a few bytes of the one before are others
			next = bytes.Clone(last)
			for range random.IntN(4) {
				if len(next) > 0 {
					next[random.IntN(len(next))]++
				}
			}
		case 3: // something is put into the one before, or left out
			at := random.IntN(len(last) + 1)
			end := at + random.IntN(len(last)-at+1)
			next = append(append(bytes.Clone(last[:at]), noise()...), last[end:]...)
		}
		e := NewDelta(last, next)
		got, err := e.Apply(last)
		if err != nil || !bytes.Equal(got, next) {
			t.Fatalf("seed %d: %q to %q: %q, %v", seed, last, next, got, err)
		}
		if len(e) > 2*len(next)+16 {
			t.Fatalf("seed %d: %q to %q takes %d bytes", seed, last, next, len(e))
		}
		if len(last) > 0 { // of another value it makes nothing else
			other := bytes.Clone(last)
			other[random.IntN(len(other))]++
			if got, err := e.Apply(other); err == nil && !bytes.Equal(got, next) {
				t.Fatalf("seed %d: of another value: %q", seed, got)
			}
		}
		last = next
	}
}

// TestDeltasAreSmall: what a pod that is replaced by another one takes follows the two pods,
// wherever they are in their document.
func TestDeltasAreSmall(t *testing.T) {
	before := []int{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31}
	for gone := range before {
		for come := 0; come <= 32; come += 2 {
			var after []int
			for i, n := range before {
				if len(after) == 0 || after[len(after)-1] < come {
					if come < n {
						after = append(after, come)
					}
				}
				if i != gone {
					after = append(after, n)
				}
			}
			if come == 32 {
				after = append(after, come)
			}
			from, to := list(before...), list(after...)
			pod := len(list(1)) - len(list())
			if e := NewDelta(from, to); len(e) > 2*pod+64 {
				t.Errorf("pod %d replaced by %d takes %d bytes, a pod %d", before[gone], come,
					len(e), pod)
			}
		}
	}
}

// BenchmarkDeltaOfHostileValues is about what a host could write that wants weir-store to be busy.
// These are short pieces, none of which is in a value that is one long piece, and the other way
// round.
func BenchmarkDeltaOfHostileValues(b *testing.B) {
	long := bytes.Repeat([]byte("a"), 1<<20)
	short := bytes.Repeat([]byte("bbbbbbbbbbbbbbbb}"), 1<<16)
	for name, v := range map[string][2][]byte{"short": {long, short}, "long": {short, long}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(v[1])))
			for b.Loop() {
				NewDelta(v[0], v[1])
			}
		})
	}
}

// TestBadDeltas: what no weir-store sends is refused, and takes no memory.
func TestBadDeltas(t *testing.T) {
	before, after := list(1, 2, 3), list(1, 3, 4)
	good := NewDelta(before, after)
	for n := range good {
		if got, err := good[:n].Apply(before); err == nil {
			t.Errorf("the first %d bytes make %q", n, got)
		}
	}
	sum := good[4:8] // both lengths take two bytes
	delta := func(had, size uint64, steps ...uint64) Delta {
		e := Delta(appendUint(appendUint(nil, had), size))
		e = append(e, sum...)
		for _, s := range steps {
			e = appendUint(e, s)
		}
		return e
	}
	had := uint64(len(before))
	for name, e := range map[string]Delta{
		"nothing":            nil,
		"another length":     delta(had+1, 10, 0, 10, 0),
		"a large promise":    delta(had, 1<<40, 0, had, 0),
		"the largest":        delta(had, 1<<64-1, 0, had, 0),
		"leaves out more":    delta(had, 10, had+1, 0, 0),
		"copies more":        delta(had, had, 1, had, 0),
		"copies the largest": delta(had, 10, 1, 1<<64-1, 0),
		"makes more":         delta(had, 10, 0, 11, 0),
		"makes less":         delta(had, 10, 0, 9, 0),
		"inserts more":       delta(had, 10, 0, 1, 200),
		"another content":    delta(had, 10, 0, 10, 0),
	} {
		if got, err := e.Apply(before); err == nil {
			t.Errorf("%s makes %q", name, got)
		} else if len(got) > 0 {
			t.Errorf("%s is refused and returns %d bytes", name, len(got))
		}
	}
}

// TestEventsHaveNoDeltas: a watch has no copy that a delta could belong to.
func TestEventsHaveNoDeltas(t *testing.T) {
	before, after := list(some(rand.New(rand.NewPCG(1, 1)), 40)...), list(1, 2)
	delta := Change{Change: store.Change{Entry: store.Entry{Key: "k", Revision: 3}},
		Delta: NewDelta(before, after)}
	frame := appendUint(appendUint(begin(TypeEvent, 0), 1), 3)
	frame = finish(appendPacked(frame, appendChanges(nil, []Change{delta})))
	if m, err := DecodeEvent(frame[headerSize:]); err == nil {
		t.Errorf("%+v", m)
	}
	m, err := DecodeBatch(Batches(3, []Change{delta})[headerSize:])
	if err != nil || len(m.Changes) != 1 || !bytes.Equal(m.Changes[0].Delta, delta.Delta) {
		t.Errorf("a batch: %+v, %v", m, err)
	}
}
