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
// costs 256 comparisons and the buckets that differ. A host sends 8 KiB to ask for a difference.
const Buckets = 256

// Digest identifies the content of a bucket: keys and values, not revisions. A restored store has
// other revisions for the same content.
//
// It is a hash over the ordered hashes of the entries. A sum of hashes would be cheaper to keep.
// But a host that chooses the values of its own keys could make such sums equal on purpose, and so
// hide the removal of another one.
type Digest [sha256.Size]byte

// Copy is the part of the store that a host or weir-store keeps. It is not safe for concurrent use.
type Copy struct {
	Revision int64 // that of the store that it agrees with
	items    map[string]*item
	buckets  [Buckets]bucket
	size     int // of all items: Cost
}

// bucket has the items of a bucket, in no order until its digest is computed.
type bucket struct {
	items  []*item
	digest Digest
	stale  bool // digest is not that of the items
}

// item is an entry. Its hash is computed with the digest of its bucket: a host, which needs digests
// when it connects, does not hash each change.
type item struct {
	Entry
	hash   [sha256.Size]byte
	hashed bool
	bucket byte
	at     int32 // in the bucket
}

// NewCopy returns the copy that a snapshot describes.
func NewCopy(s Snapshot) *Copy {
	c := &Copy{Revision: s.Revision, items: make(map[string]*item, len(s.Entries))}
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

// MaxCopy is how much a host takes of the store, in bytes of memory, with what is held.
const MaxCopy = 256 << 20

// entryCost is about what an entry takes in memory beside its key and its value, of which both may
// have no bytes.
const entryCost = 256

// Cost returns about what the entry takes in memory, in bytes.
func (e Entry) Cost() int { return entryCost + len(e.Key) + len(e.Value) }

// Size returns about what the copy takes in memory, in bytes.
func (c *Copy) Size() int { return c.size }

// Len returns the number of entries.
func (c *Copy) Len() int { return len(c.items) }

// Get returns the entry of a key.
func (c *Copy) Get(key string) (Entry, bool) {
	if i := c.items[key]; i != nil {
		return i.Entry, true
	}
	return Entry{}, false
}

// All returns every entry, in no order.
func (c *Copy) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, i := range c.items {
			if !yield(i.Entry) {
				return
			}
		}
	}
}

// Snapshot returns the content, ordered by key.
func (c *Copy) Snapshot() Snapshot {
	s := Snapshot{Revision: c.Revision, Entries: make([]Entry, 0, len(c.items))}
	for e := range c.All() {
		s.Entries = append(s.Entries, e)
	}
	slices.SortFunc(s.Entries, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return s
}

// Apply makes the changes of a batch and returns those that changed a value. An entry that is
// written again with the same value gets its new revision and is not returned.
func (c *Copy) Apply(b Batch) (changed []Change) {
	for _, ch := range b.Changes {
		if ch.Deleted {
			if _, ok := c.remove(ch.Key); ok {
				changed = append(changed, ch)
			}
		} else if c.put(ch.Entry) {
			changed = append(changed, ch)
		}
	}
	c.Revision = b.Revision
	return changed
}

func (c *Copy) put(e Entry) (changed bool) {
	i := c.items[e.Key]
	switch {
	case i == nil:
		i = &item{bucket: bucketOf(e.Key)}
		b := &c.buckets[i.bucket]
		i.at = int32(len(b.items))
		b.items = append(b.items, i)
		i.Entry, b.stale = e, true
		c.size += e.Cost()
		c.items[e.Key] = i
		return true
	case bytes.Equal(i.Value, e.Value):
		i.Revision = e.Revision
		return false
	}
	c.size += len(e.Value) - len(i.Value)
	i.Value, i.Revision, i.hashed = e.Value, e.Revision, false
	c.buckets[i.bucket].stale = true
	return true
}

// remove removes a key and returns what it had.
func (c *Copy) remove(key string) (was Entry, ok bool) {
	i := c.items[key]
	if i == nil {
		return was, false
	}
	delete(c.items, key)
	c.size -= i.Entry.Cost()
	b := &c.buckets[i.bucket]
	last := b.items[len(b.items)-1]
	b.items[i.at], last.at = last, i.at
	b.items[len(b.items)-1] = nil
	b.items, b.stale = b.items[:len(b.items)-1], true
	return i.Entry, true
}

// Digest returns the digest of a bucket. It is computed when something in the bucket has changed.
func (c *Copy) Digest(n int) Digest {
	b := &c.buckets[n]
	if !b.stale {
		return b.digest
	}
	b.digest, b.stale = Digest{}, false
	if len(b.items) == 0 {
		return b.digest
	}
	slices.SortFunc(b.items, func(x, y *item) int { return cmp.Compare(x.Key, y.Key) })
	h := sha256.New()
	for at, i := range b.items {
		if i.at = int32(at); !i.hashed {
			i.hash, i.hashed = hashOf(i.Entry), true
		}
		h.Write(i.hash[:])
	}
	h.Sum(b.digest[:0])
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
func (c *Copy) Bucket(n int) []Entry {
	entries := make([]Entry, 0, len(c.buckets[n].items))
	for _, i := range c.buckets[n].items {
		entries = append(entries, i.Entry)
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries
}

// DiffBucket returns the changes that give a bucket these entries, ordered by key. It returns an
// error if a key does not belong to the bucket, or appears twice.
func (c *Copy) DiffBucket(n int, entries []Entry) (changes []Change, err error) {
	have := make(map[string]bool, len(entries))
	for _, e := range entries {
		if have[e.Key] || int(bucketOf(e.Key)) != n {
			return nil, fmt.Errorf("%w: bucket %d does not have %s once", ErrInvalid, n, e.Key)
		}
		have[e.Key] = true
		if i := c.items[e.Key]; i == nil || !bytes.Equal(i.Value, e.Value) {
			changes = append(changes, Change{Entry: e})
		}
	}
	for _, i := range c.buckets[n].items {
		if !have[i.Key] {
			changes = append(changes, Change{Entry: Entry{Key: i.Key}, Deleted: true})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Key, b.Key) })
	return changes, nil
}

// Diff returns the changes that give c the content of another copy, ordered by key. It looks into
// the buckets whose digests differ only.
func (c *Copy) Diff(to *Copy) (changes []Change) {
	for n := range Buckets {
		if c.Digest(n) == to.Digest(n) {
			continue
		}
		for _, i := range to.buckets[n].items {
			if before := c.items[i.Key]; before == nil || before.hash != i.hash {
				changes = append(changes, Change{Entry: i.Entry})
			}
		}
		for _, i := range c.buckets[n].items {
			if to.items[i.Key] == nil {
				changes = append(changes, Change{Entry: Entry{Key: i.Key}, Deleted: true})
			}
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Key, b.Key) })
	return changes
}
