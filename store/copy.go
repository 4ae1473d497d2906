package store

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
)

// Buckets is how many parts a copy has. Each has a digest of its own, so that comparing two copies
// costs 256 comparisons and the buckets that differ, and so that a host sends 8 KiB to ask for a
// difference.
const Buckets = 256

// Digest stands for the content of a bucket: keys and values, not revisions. A restored store has
// other revisions for the same content.
//
// It is a hash over the ordered hashes of the entries. A sum of hashes would be cheaper to keep,
// but a host that chooses the values of its own keys could make such sums equal on purpose, and so
// hide the removal of another one.
type Digest [sha256.Size]byte

// Copy is what a host or weir-store has of the store. It is not safe for concurrent use.
type Copy struct {
	Revision int64 // that of the store that it agrees with
	buckets  [Buckets]bucket
	size     int
}

type bucket struct {
	entries map[string]hashed
	digest  Digest
	stale   bool // digest is not that of entries
}

type hashed struct {
	Entry
	hash [sha256.Size]byte
}

// NewCopy returns the copy that a snapshot describes.
func NewCopy(s Snapshot) *Copy {
	c := &Copy{Revision: s.Revision}
	for _, e := range s.Entries {
		c.put(e)
	}
	return c
}

// BucketOf returns the bucket that a key belongs to.
func BucketOf(key string) int { return int(bucketOf(key)) }

func bucketOf(key string) byte {
	sum := sha256.Sum256([]byte(key))
	return sum[0]
}

func hashOf(e Entry) [sha256.Size]byte {
	h := sha256.New()
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(e.Key)))
	h.Write(length[:])
	h.Write([]byte(e.Key))
	h.Write(e.Value)
	return [sha256.Size]byte(h.Sum(nil))
}

// Len returns the number of entries.
func (c *Copy) Len() int { return c.size }

// Get returns the entry of a key.
func (c *Copy) Get(key string) (Entry, bool) {
	e, ok := c.buckets[bucketOf(key)].entries[key]
	return e.Entry, ok
}

// All returns every entry, in no order.
func (c *Copy) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for i := range c.buckets {
			for _, e := range c.buckets[i].entries {
				if !yield(e.Entry) {
					return
				}
			}
		}
	}
}

// Snapshot returns the content, ordered by key.
func (c *Copy) Snapshot() Snapshot {
	s := Snapshot{Revision: c.Revision, Entries: make([]Entry, 0, c.size)}
	for e := range c.All() {
		s.Entries = append(s.Entries, e)
	}
	slices.SortFunc(s.Entries, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return s
}

// Apply makes the changes of a batch and returns those that changed a value: an entry that is
// written again with the same value gets its new revision and is not returned.
func (c *Copy) Apply(b Batch) (changed []Change) {
	for _, ch := range b.Changes {
		if ch.Deleted && c.remove(ch.Key) || !ch.Deleted && c.put(ch.Entry) {
			changed = append(changed, ch)
		}
	}
	c.Revision = b.Revision
	return changed
}

func (c *Copy) put(e Entry) (changed bool) {
	b := &c.buckets[bucketOf(e.Key)]
	before, ok := b.entries[e.Key]
	if ok && bytes.Equal(before.Value, e.Value) {
		before.Revision = e.Revision
		b.entries[e.Key] = before
		return false
	}
	if b.entries == nil {
		b.entries = map[string]hashed{}
	}
	if !ok {
		c.size++
	}
	b.entries[e.Key] = hashed{e, hashOf(e)}
	b.stale = true
	return true
}

func (c *Copy) remove(key string) (changed bool) {
	b := &c.buckets[bucketOf(key)]
	if _, ok := b.entries[key]; !ok {
		return false
	}
	delete(b.entries, key)
	b.stale = true
	c.size--
	return true
}

// Digest returns the digest of a bucket. It is computed when something in the bucket has changed.
func (c *Copy) Digest(i int) Digest {
	b := &c.buckets[i]
	if !b.stale {
		return b.digest
	}
	keys := make([]string, 0, len(b.entries))
	for key := range b.entries {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if len(keys) == 0 {
		b.digest, b.stale = Digest{}, false
		return b.digest
	}
	h := sha256.New()
	for _, key := range keys {
		e := b.entries[key]
		h.Write(e.hash[:])
	}
	b.digest, b.stale = Digest(h.Sum(nil)), false
	return b.digest
}

// Sum returns one digest for the whole content. Two copies with the same sum have the same keys and
// values.
func (c *Copy) Sum() Digest {
	h := sha256.New()
	for i := range Buckets {
		d := c.Digest(i)
		h.Write(d[:])
	}
	return Digest(h.Sum(nil))
}

// Bucket returns the entries of a bucket, ordered by key.
func (c *Copy) Bucket(i int) []Entry {
	entries := make([]Entry, 0, len(c.buckets[i].entries))
	for _, e := range c.buckets[i].entries {
		entries = append(entries, e.Entry)
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries
}

// DiffBucket returns the changes that give a bucket these entries, ordered by key. It returns an
// error if a key does not belong to the bucket, or appears twice.
func (c *Copy) DiffBucket(i int, entries []Entry) ([]Change, error) {
	to := bucket{entries: make(map[string]hashed, len(entries))}
	for _, e := range entries {
		if _, twice := to.entries[e.Key]; twice || int(bucketOf(e.Key)) != i {
			return nil, fmt.Errorf("%w: bucket %d does not have %s once", ErrInvalid, i, e.Key)
		}
		to.entries[e.Key] = hashed{e, hashOf(e)}
	}
	changes := c.buckets[i].diff(&to)
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Key, b.Key) })
	return changes, nil
}

// Diff returns the changes that give c the content of another copy, ordered by key. It looks into
// the buckets whose digests differ only.
func (c *Copy) Diff(to *Copy) (changes []Change) {
	for i := range Buckets {
		if c.Digest(i) != to.Digest(i) {
			changes = append(changes, c.buckets[i].diff(&to.buckets[i])...)
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Key, b.Key) })
	return changes
}

func (b *bucket) diff(to *bucket) (changes []Change) {
	for key, e := range to.entries {
		if before, ok := b.entries[key]; !ok || before.hash != e.hash {
			changes = append(changes, Change{Entry: e.Entry})
		}
	}
	for key := range b.entries {
		if _, ok := to.entries[key]; !ok {
			changes = append(changes, Change{Entry: Entry{Key: key}, Deleted: true})
		}
	}
	return changes
}
