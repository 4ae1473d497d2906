package cluster

import (
	"bytes"
	"maps"

	"github.com/weirnet/weir/store"
)

// own is what the store has of this host, as far as it is known: what publishing compares with. The
// copy says it, and the host's own transactions that the copy does not have yet. When the store is
// put back, these may be gone there, so that they count no longer.
type own struct {
	copied  map[string][]byte  // at the revision of the copy
	pending map[string]pending // newer ones
	report  []byte             // no copy has reports
	putBack int                // how often the store was put back
}

// pending is a value of a transaction.
type pending struct {
	value    []byte
	revision int64
}

func newOwn() own { return own{copied: map[string][]byte{}, pending: map[string]pending{}} }

// step moves to the revision of a step of the copy, which has these changes of the host's values.
// It reports whether what the store has is not what it was thought to have.
func (o *own) step(changes []store.Change, revision int64, putBack bool) (differs bool) {
	before := o.values()
	for _, ch := range changes {
		if o.copied[ch.Key] = ch.Value; ch.Deleted {
			delete(o.copied, ch.Key)
		}
	}
	if putBack {
		o.putBack++
		o.report = nil
		clear(o.pending)
	}
	maps.DeleteFunc(o.pending, func(_ string, p pending) bool { return p.revision <= revision })
	return putBack || !maps.EqualFunc(before, o.values(), bytes.Equal)
}

// committed notes values that the store has since a revision. The copy is at another one, and
// putBack is that of the time before the transaction or the read.
func (o *own) committed(all []store.Entry, revision, copied int64, putBack int) {
	if revision <= copied || putBack != o.putBack {
		return // the copy knows better
	}
	for _, e := range all {
		if o.pending[e.Key].revision <= revision {
			o.pending[e.Key] = pending{e.Value, revision}
		}
	}
}

// doubt forgets transactions that the copy does not have yet, since another weir-store may follow.
// One that was taken over may have answered them and made none, with a revision that no copy
// reaches. It reports whether there were some. What was made is in the copy soon, or written again.
func (o *own) doubt() (some bool) {
	some = len(o.pending) > 0
	clear(o.pending)
	return some
}

// values returns what the store has, by key.
func (o *own) values() map[string][]byte {
	all := maps.Clone(o.copied)
	for key, p := range o.pending {
		all[key] = p.value
	}
	return all
}

// value returns what the store has of a key.
func (o *own) value(key string) []byte {
	if p, ok := o.pending[key]; ok {
		return p.value
	}
	return o.copied[key]
}
