package members

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// revoke takes what hosts, admins and feeds had whose certificates were revoked since out of the
// backup: an old one gives them no rights back.
func (b *backup) revoke() error {
	all := store.NewCopy(store.Snapshot{Entries: b.entries})
	hosts, others := b.revocations()
	var changes []store.Change
	for _, e := range b.entries {
		switch {
		case e.Key == cluster.IssuedKey:
			issued, err := cluster.Decode[cluster.Issued](e.Value)
			if errors.Is(err, cluster.ErrDocument) {
				issued = cluster.Issued{} // certificates are issued again
			} else if err != nil {
				return fmt.Errorf("%s: %w: %s", e.Key, err, laterWeir)
			}
			issued.Revoke(func(c cluster.IssuedCertificate) bool { return others[c.Serial] })
			if e, err = entry(e.Key, &issued); err != nil {
				return err
			}
			changes = append(changes, store.Change{Entry: e})
		case strings.HasPrefix(e.Key, cluster.NodeTree):
			node, err := cluster.Decode[cluster.Node](e.Value)
			if err != nil || !hosts[node.Serial] {
				continue // hosts check it again
			}
			// Of those that it replaces, some may be another host's: an attacker has written them.
			revoked := slices.DeleteFunc(node.Serials(),
				func(s cluster.Serial) bool { return !hosts[s] })
			gone, err := b.withoutHost(all, node.Name, revoked)
			if err != nil {
				return err
			}
			changes = append(changes, gone...)
		}
	}
	all.Apply(store.Batch{Changes: changes})
	b.entries = all.Snapshot().Entries
	return nil
}

// withoutHost returns what the removal of a host, whose certificates are revoked, changes in a
// backup.
func (b *backup) withoutHost(all *store.Copy, name string, revoked []cluster.Serial) (
	changes []store.Change, err error) {
	var ranges store.Snapshot
	for _, e := range b.entries {
		switch {
		case strings.HasPrefix(e.Key, cluster.RangeTree):
			ranges.Entries = append(ranges.Entries, e)
		case e.Key == cluster.NodeTree+name, e.Key == cluster.EndpointKey+name,
			e.Key == cluster.ReportTree+name,
			strings.HasPrefix(e.Key, cluster.PodsTree+name+"/"):
			changes = append(changes, store.Change{Entry: e, Deleted: true})
		}
	}
	key := removedKey(name)
	var record cluster.RemovalRecord
	if e, there := all.Get(key); there {
		if had, counts := b.signed(e); counts {
			record = had
		}
	}
	e, err := extendRemovalRecord(record, key, revoked, b.admin, nil)
	if err != nil {
		return nil, err
	}
	changes = append(changes, store.Change{Entry: e})
	t, err := cluster.ReleaseRanges(ranges, name)
	for _, p := range t.Put {
		changes = append(changes, store.Change{Entry: p})
	}
	return changes, err
}

// extendRemovalRecord returns the removal record with more serial numbers, signed by those whose
// keys are not nil.
func extendRemovalRecord(record cluster.RemovalRecord, key string, revoked []cluster.Serial,
	admin, ca ed25519.PrivateKey) (store.Entry, error) {
	record.Add(revoked)
	record.Signature, record.CA = nil, nil
	if admin != nil {
		if err := record.Sign(key, admin); err != nil {
			return store.Entry{}, err
		}
	}
	if ca != nil {
		if err := record.SignCA(key, ca); err != nil {
			return store.Entry{}, err
		}
	}
	return entry(key, &record)
}
