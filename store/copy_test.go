package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirnet/weir/internal/testrand"
)

// randomSnapshot has up to 30 of 40 keys with one of three values.
func randomSnapshot(random *rand.Rand, revision int64) Snapshot {
	c := NewCopy(Snapshot{Revision: revision})
	for range random.IntN(30) {
		c.put(Entry{Key: fmt.Sprint("k/", random.IntN(40)),
			Value: fmt.Append(nil, random.IntN(3)), Revision: revision})
	}
	return c.Snapshot()
}

func values(entries []Entry) map[string]string {
	m := map[string]string{}
	for _, e := range entries {
		m[e.Key] = string(e.Value)
	}
	return m
}

// TestDiff: the difference of two random copies makes the one the other, and names no key that is
// the same in both. It is empty exactly if all digests are equal, whatever the revisions.
func TestDiff(t *testing.T) {
	seed := testrand.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		a, b := NewCopy(randomSnapshot(random, 1)), NewCopy(randomSnapshot(random, 2))
		was, want := values(a.Snapshot().Entries), values(b.Snapshot().Entries)
		changes := a.Diff(b)
		for _, ch := range changes {
			before, had := was[ch.Key]
			after, has := want[ch.Key]
			if had == has && before == after || ch.Deleted == has || has && string(ch.Value) !=
				after {
				t.Fatalf("seed %d: %+v changes %q to %q", seed, ch, before, after)
			}
		}
		equal := true
		for i := range Buckets {
			equal = equal && a.Digest(i) == b.Digest(i)
		}
		if equal != maps.Equal(was, want) || equal != (len(changes) == 0) {
			t.Fatalf("seed %d: digests equal: %v, %d changes", seed, equal, len(changes))
		}
		if applied := a.Apply(Batch{Revision: 2, Changes: changes}); len(applied) != len(changes) {
			t.Fatalf("seed %d: %d of %d changes changed something", seed, len(applied),
				len(changes))
		}
		if got := values(a.Snapshot().Entries); !maps.Equal(got, want) || a.Len() != len(want) ||
			len(a.Diff(b)) != 0 || a.Revision != 2 {
			t.Fatalf("seed %d: %v, expected %v", seed, got, want)
		}
	}
}

// TestDigestIsOfTheContent: the digests of a copy do not depend on how it came to be.
func TestDigestIsOfTheContent(t *testing.T) {
	a := NewCopy(Snapshot{})
	for i := range 500 {
		a.put(Entry{Key: fmt.Sprint(i), Value: []byte("x"), Revision: int64(i)})
		a.Digest(i % Buckets)
	}
	for i := range 499 {
		a.remove(fmt.Sprint(i))
	}
	b := NewCopy(Snapshot{Entries: []Entry{{Key: "499", Value: []byte("x"), Revision: 7}}})
	for i := range Buckets {
		if a.Digest(i) != b.Digest(i) {
			t.Fatalf("bucket %d differs", i)
		}
	}
}

// TestKeyAndValueAreApart: bytes that move from the key to the value change the digest.
func TestKeyAndValueAreApart(t *testing.T) {
	if hashOf(Entry{Key: "ab", Value: []byte("c")}) == hashOf(Entry{Key: "a",
		Value: []byte("bc")}) {
		t.Error("ab=c and a=bc have the same hash")
	}
}

// TestDiffCost: Diff does not look into buckets with equal digests. Entries that are changed behind
// its back there stay unseen.
func TestDiffCost(t *testing.T) {
	a, b := NewCopy(Snapshot{}), NewCopy(Snapshot{})
	for i := range 5000 {
		e := Entry{Key: fmt.Sprint(i), Value: []byte("x")}
		a.put(e)
		b.put(e)
	}
	for i := range Buckets {
		a.Digest(i)
		b.Digest(i)
	}
	b.put(Entry{Key: "17", Value: []byte("y")})
	for i := range b.buckets {
		if byte(i) != bucketOf("17") {
			b.buckets[i].items = nil
		}
	}
	if changes := a.Diff(b); len(changes) != 1 || changes[0].Key != "17" {
		t.Errorf("%d changes", len(changes))
	}
}

// modelGuarded is Guarded by its definition: the store's content, and what is enforced beside it.
type modelGuarded struct{ stored, enforced map[string]string }

func (m *modelGuarded) step(guard Guard, stored map[string]string, c *Copy) {
	count, removed := map[string]int{}, map[string][]string{}
	for key := range stored {
		if _, ok := m.enforced[key]; !ok {
			count[guard.Kind(key)]++
		}
	}
	held := map[string]int{}
	for key := range m.enforced {
		kind := guard.Kind(key)
		if _, ok := stored[key]; ok {
			count[kind]++
			continue
		}
		if kind == "" || guard.Meant(c, key) {
			delete(m.enforced, key)
			continue
		}
		count[kind]++
		if _, ok := m.stored[key]; ok {
			removed[kind] = append(removed[kind], key)
		} else {
			held[kind]++
		}
	}
	for kind, keys := range removed {
		if 3*(len(keys)+held[kind]) > count[kind] || guard.Demands(kind) {
			continue
		}
		for _, key := range keys {
			delete(m.enforced, key)
		}
	}
	maps.Copy(m.enforced, stored)
	m.stored = stored
}

// TestGuarded takes random steps, by batches and by whole snapshots, and compares with the model.
// What Step and Replace return leads to what is enforced.
func TestGuarded(t *testing.T) {
	seed := testrand.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	guard := Guard{
		Kind: func(key string) string {
			return []string{"", "a", "b", "c"}[int(key[len(key)-1])%4]
		},
		Demands: func(kind string) bool { return kind == "c" },
		Meant: func(c *Copy, key string) bool {
			_, ok := c.Get("removed" + key)
			return ok
		},
	}
	heldSteps, accepted := 0, 0
	for range 300 {
		s := randomSnapshot(random, 1)
		d := NewGuarded(guard, s)
		m := &modelGuarded{values(s.Entries), values(s.Entries)}
		applied := values(s.Entries)
		for revision := range int64(30) {
			var changes []Change
			if random.IntN(6) == 0 {
				s = randomSnapshot(random, revision)
				changes = d.Replace(s)
			} else {
				b := randomBatch(random, revision)
				after := NewCopy(s)
				after.Apply(b)
				s = after.Snapshot()
				changes = d.Step(b)
			}
			m.step(guard, values(s.Entries), d.Stored())
			if len(d.Held()) > 0 {
				heldSteps++
			}
			if random.IntN(5) == 0 { // a start from the disk
				next := NewGuarded(guard, d.Stored().Snapshot())
				next.Hold(d.HeldEntries())
				d = next
			}
			if random.IntN(10) == 0 && len(d.Held()) > 0 {
				accepted++
				changes = append(changes, d.Accept()...)
				m.enforced = maps.Clone(m.stored)
			}
			for _, ch := range changes {
				if applied[ch.Key] = string(ch.Value); ch.Deleted {
					delete(applied, ch.Key)
				}
			}
			got := values(d.Enforced().Entries)
			if !maps.Equal(got, m.enforced) || !maps.Equal(applied, got) {
				t.Fatalf("seed %d: enforced %v, expected %v, applied %v", seed, got, m.enforced,
					applied)
			}
			if !maps.Equal(values(d.Stored().Snapshot().Entries), m.stored) ||
				d.Stored().Revision != revision || d.Enforced().Revision != revision {
				t.Fatalf("seed %d: the stored copy is not the store's", seed)
			}
			checkHeld(t, d)
		}
	}
	if heldSteps < 100 || accepted < 20 {
		t.Errorf("seed %d: held %d times, accepted %d times", seed, heldSteps, accepted)
	}
}

// randomBatch has changes of different keys, some of which explain removals.
func randomBatch(random *rand.Rand, revision int64) Batch {
	b := Batch{Revision: revision}
	seen := map[string]bool{}
	for range random.IntN(12) {
		ch := Change{Deleted: random.IntN(3) > 0, Entry: Entry{Revision: revision,
			Key: fmt.Sprint("k/", random.IntN(40)), Value: fmt.Append(nil, random.IntN(3))}}
		if random.IntN(8) == 0 {
			ch.Key, ch.Deleted = "removed"+ch.Key, false
		}
		if !seen[ch.Key] {
			b.Changes = append(b.Changes, ch)
		}
		seen[ch.Key] = true
	}
	return b
}

// checkHeld: held is exactly what is enforced and not stored, and the counts are right.
func checkHeld(t *testing.T, d *Guarded) {
	t.Helper()
	var want []string
	counts := map[string]int{}
	for _, e := range d.Enforced().Entries {
		counts[d.guard.Kind(e.Key)]++
		if _, ok := d.Stored().Get(e.Key); !ok {
			want = append(want, e.Key)
		}
	}
	slices.Sort(want)
	if !slices.Equal(want, d.Held()) {
		t.Fatalf("held %v, expected %v", d.Held(), want)
	}
	for kind, n := range d.counts {
		if n != counts[kind] {
			t.Fatalf("%d of %q, expected %d", n, kind, counts[kind])
		}
	}
}

// TestStepCost: a step with one change allocates as much with a thousand keys as with fifty
// thousand.
func TestStepCost(t *testing.T) {
	var cost [2]float64
	for i, n := range []int{1000, 50000} {
		var s Snapshot
		for k := range n {
			s.Entries = append(s.Entries, Entry{Key: fmt.Sprint("k/", k), Value: []byte("x")})
		}
		d := NewGuarded(Guard{Kind: func(string) string { return "k" },
			Meant: func(*Copy, string) bool { return false }}, s)
		round := byte(0)
		cost[i] = testing.AllocsPerRun(200, func() {
			round++
			d.Step(Batch{Revision: int64(round), Changes: []Change{{Entry: Entry{Key: "k/7",
				Value: []byte{round}}}}})
		})
	}
	if cost[0] != cost[1] {
		t.Errorf("%v allocations with 1,000 keys, %v with 50,000", cost[0], cost[1])
	}
}
