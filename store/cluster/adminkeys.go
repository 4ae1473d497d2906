package cluster

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
)

// Limits of AdminKeys.
const (
	maxLists = 64 // that it keeps for hosts that were away
	maxAdmin = 64 // keys of a list
)

// AdminKeys is the document of KeysKey, the rules lock: whose signature a version of the rules
// needs. An administrator writes it; hosts believe the signatures, not the store.
type AdminKeys struct {
	Versioned
	// Lists are the newest last. Each is signed by a key of the one before, so that a host that was
	// away follows from the list that it knows.
	Lists []KeyList `json:"lists"`
}

// KeyList is one list of keys. The zero value means that there is none: every version is accepted.
type KeyList struct {
	Count     uint64    `json:"count"` // rises with each list
	Keys      []Key     `json:"keys,omitempty"`
	Signature Signature `json:"signature,omitempty"` // none of the first list
}

// Check implements Document.
func (a *AdminKeys) Check() error {
	if len(a.Lists) == 0 || len(a.Lists) > maxLists {
		return fmt.Errorf("1 to %d lists of keys, not %d", maxLists, len(a.Lists))
	}
	for i, l := range a.Lists {
		if len(l.Keys) > maxAdmin || l.Count == 0 || i > 0 && l.Count != a.Lists[i-1].Count+1 {
			return errors.New("lists of keys are counted from 1, without a gap")
		}
		if err := ascending("keys", l.Keys, compareKeys); err != nil {
			return err
		}
	}
	return nil
}

func compareKeys(a, b Key) int { return bytes.Compare(a[:], b[:]) }

// Newest returns the list that is in force.
func (a *AdminKeys) Newest() KeyList {
	if len(a.Lists) == 0 {
		return KeyList{}
	}
	return a.Lists[len(a.Lists)-1]
}

// Add makes a list the newest.
func (a *AdminKeys) Add(l KeyList) {
	a.Lists = append(a.Lists, l)
	a.Lists = a.Lists[max(0, len(a.Lists)-maxLists):]
}

// Locked reports whether a version of the rules needs a signature.
func (l KeyList) Locked() bool { return len(l.Keys) > 0 }

// Has reports whether a key is one of the list.
func (l KeyList) Has(k Key) bool { return slices.Contains(l.Keys, k) }

// Next returns the list that follows l, signed by a key of l.
func (l KeyList) Next(of Serial, keys []Key, by ed25519.PrivateKey) (KeyList, error) {
	next := KeyList{Count: l.Count + 1, Keys: slices.Clone(keys)}
	slices.SortFunc(next.Keys, compareKeys)
	next.Keys = slices.Compact(next.Keys)
	if !l.Locked() {
		return next, nil
	}
	var err error
	next.Signature, err = sign(by, "keys", of.String(), next.content())
	return next, err
}

func (l KeyList) content() KeyList { return KeyList{Count: l.Count, Keys: l.Keys} }

// Digest names a list of a cluster: an invitation has it.
func (l KeyList) Digest(of Serial) (Digest, error) {
	b, err := signed("keys", of.String(), l.content())
	return TextDigest(string(b)), err
}

// Follow returns the list that a host with list l accepts from now on. Without a list there is no
// lock, and a document cannot bring one: it comes with the invitation. A list without keys ends the
// lock, if it is signed as every other.
func (l KeyList) Follow(of Serial, a *AdminKeys) (KeyList, error) {
	for _, next := range a.Lists {
		switch {
		case !l.Locked():
			return l, nil
		case next.Count == l.Count && !slices.Equal(next.Keys, l.Keys):
			return l, fmt.Errorf("list %d of the keys of administrators is not the one that this "+
				"host knows: %w", l.Count, ErrSignature)
		case next.Count <= l.Count:
			continue
		}
		if err := verify(l.Keys, "keys", of.String(), next.content(), next.Signature); err != nil {
			return l, fmt.Errorf("list %d of the keys of administrators: %w", next.Count, err)
		}
		l = next
	}
	if newest := a.Newest(); l.Locked() && newest.Count < l.Count {
		return l, fmt.Errorf("list %d of the keys of administrators: %w: list %d", newest.Count,
			ErrOutdated, l.Count)
	}
	return l, nil
}

// Passed returns the keys of the lists from l on to next, which follows from l in the document. A
// host that was away has a removal and a later list in one step: it believes the removal record as
// it would have when the removal record was new. An attacker gains nothing: that store could have
// withheld the later list.
func (l KeyList) Passed(next KeyList, a *AdminKeys) []Key {
	passed := l.Keys
	for _, one := range a.Lists {
		if l.Count < one.Count && one.Count <= next.Count {
			passed = slices.Concat(passed, one.Keys)
		}
	}
	return passed
}

// Signers returns the keys of which one has to have signed a removal record, with those that were
// passed in the same step. It returns none without the lock, when every removal record is good.
func (l KeyList) Signers(passed []Key) []Key {
	if !l.Locked() {
		return nil
	}
	return slices.Concat(l.Keys, passed)
}
