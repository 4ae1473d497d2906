package disk

import "slices"

// State is what a directory had.
type State struct {
	Snapshot
	Log []Record // since the snapshot
	// Aside are the damaged files, under the names that they have now.
	Aside []string
}

// Value returns the last value that the store had of a key, nil for none. One that it lost stays:
// the host may hold its removal.
func (s *State) Value(key string) (value []byte) {
	for _, e := range slices.Concat(s.Held, s.Stored.Entries) {
		if e.Key == key {
			value = e.Value
		}
	}
	for _, r := range s.Log {
		for _, ch := range r.Batch.Changes {
			if ch.Key == key && !ch.Deleted {
				value = ch.Value
			}
		}
	}
	return value
}
