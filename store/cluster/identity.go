package cluster

import (
	"errors"
	"fmt"
	"net/netip"
)

// Identity is the document of IdentityKey: what makes a cluster this one.
type Identity struct {
	Versioned
	ID    Serial `json:"id"`
	Epoch uint64 `json:"epoch"` // increases with each restore
	// CA are the certificates of the CA, DER. A host trusts those that it got when it joined, not
	// these: they are there for people and for weir-store.
	CA     [][]byte `json:"ca"`
	Pools  []Pool   `json:"pools,omitempty"`
	Stores []string `json:"stores,omitempty"` // of all weir-stores, HOST:PORT
	// Admins are the keys of which one has to sign every head; none: heads need no signature.
	Admins []Key `json:"admins,omitempty"`
	// Signature is one of the admins that the list before had.
	Signature Signature `json:"signature,omitempty"`
}

// Check implements Document.
func (i *Identity) Check() error {
	if i.ID == (Serial{}) || i.Epoch == 0 {
		return errors.New("a cluster has an id and an epoch from 1")
	}
	supernets := make([]netip.Prefix, len(i.Pools))
	for n, p := range i.Pools {
		if err := p.Check(); err != nil {
			return err
		}
		supernets[n] = p.Supernet
	}
	if err := disjoint(supernets); err != nil {
		return err
	}
	return ascending("admins", i.Admins, compareKeys)
}

func compareKeys(a, b Key) int { return compareBytes(a[:], b[:]) }

// disjoint returns an error for networks that overlap.
func disjoint(all []netip.Prefix) error {
	for i, a := range all {
		for _, b := range all[:i] {
			if a.Overlaps(b) {
				return fmt.Errorf("%v overlaps %v", a, b)
			}
		}
	}
	return nil
}

// NextAdmins returns the keys of admins that a host accepts from now on: those of the document if
// it has the same, or if one of the keys so far signed it. Without keys so far there is no rules
// lock, and a document cannot bring one: it comes with the invitation.
func (i *Identity) NextAdmins(now []Key) ([]Key, error) {
	if len(now) == 0 {
		return nil, nil
	}
	if sameKeys(now, i.Admins) {
		return now, nil
	}
	content := *i
	content.Signature = nil
	if err := verify(now, "admins", i.ID.String(), content, i.Signature); err != nil {
		return now, fmt.Errorf("a new list of admins: %w", err)
	}
	return i.Admins, nil
}

// Sign signs a new list of admins with a key of the list before.
func (i *Identity) Sign(key []byte) (err error) {
	i.Version = layout
	content := *i
	content.Signature = nil
	i.Signature, err = sign(key, "admins", i.ID.String(), content)
	return err
}
