package cluster

import (
	"errors"
	"fmt"
	"net/netip"
)

// maxStores is how many addresses of weir-stores there are at most. Each that does not answer costs
// a host seconds, and the list has no signature. With any number an attacker in the store could
// keep hosts for days from trying those that they know from their invitation.
const maxStores = 64

// Identity is the document of IdentityKey: the identity of the cluster.
type Identity struct {
	Versioned
	ID    Serial `json:"id"`
	Epoch uint64 `json:"epoch"` // increases with each restore
	// CA are the certificates of the CA, DER. A host trusts the one that its token names, not
	// these: they are there for people and for weir-store.
	CA     [][]byte `json:"ca"`
	Pools  []Pool   `json:"pools,omitempty"`
	Stores []string `json:"stores,omitempty"` // of all weir-stores, HOST:PORT
}

// Check implements Document.
func (i *Identity) Check() error {
	if i.ID == (Serial{}) || i.Epoch == 0 {
		return errors.New("a cluster needs an id and an epoch from 1")
	}
	if len(i.Stores) > maxStores {
		return fmt.Errorf("%d addresses of weir-stores, at most %d are possible", len(i.Stores),
			maxStores)
	}
	supernets := make([]netip.Prefix, len(i.Pools))
	for n, p := range i.Pools {
		if err := p.Check(); err != nil {
			return err
		}
		supernets[n] = p.Supernet
	}
	return disjoint(supernets)
}

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
