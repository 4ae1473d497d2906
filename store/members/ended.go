package members

import (
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// end takes what hosts, admins and feeds had that were ended since out of the backup: an old one
// gives them no rights back.
func (b *backup) end() error {
	all := store.NewCopy(store.Snapshot{Entries: b.entries})
	hosts, others, err := b.ends()
	if err != nil {
		return err
	}
	var changes []store.Change
	for _, e := range b.entries {
		switch {
		case e.Key == cluster.IssuedKey:
			issued, err := cluster.Decode[cluster.Issued](e.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", e.Key, err)
			}
			issued.End(func(c cluster.IssuedCertificate) bool { return others[c.Serial] })
			if e, err = entry(e.Key, &issued); err != nil {
				return err
			}
			changes = append(changes, store.Change{Entry: e})
		case strings.HasPrefix(e.Key, cluster.NodeTree):
			node, err := cluster.Decode[cluster.Node](e.Value)
			if err != nil || !hosts[node.Serial] {
				continue // hosts check it again
			}
			gone, err := b.withoutHost(all, node)
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

// withoutHost returns what the removal of a host changes in a backup.
func (b *backup) withoutHost(all *store.Copy, node cluster.Node) (changes []store.Change,
	err error) {
	var ranges store.Snapshot
	for _, e := range b.entries {
		switch {
		case strings.HasPrefix(e.Key, cluster.RangeTree):
			ranges.Entries = append(ranges.Entries, e)
		case e.Key == cluster.NodeTree+node.Name, e.Key == cluster.EndpointKey+node.Name,
			e.Key == cluster.ReportTree+node.Name,
			strings.HasPrefix(e.Key, cluster.PodsTree+node.Name+"/"):
			changes = append(changes, store.Change{Entry: e, Deleted: true})
		}
	}
	key := cluster.RemovedTree + "node/" + node.Name
	var mark cluster.Removed
	if e, there := all.Get(key); there {
		had, counts, err := b.signed(e)
		if err != nil {
			return nil, err
		}
		if counts {
			mark = had
		}
	}
	e, err := markWith(mark, key, node.Serial, b.admin)
	if err != nil {
		return nil, err
	}
	changes = append(changes, store.Change{Entry: e})
	t, err := cluster.ReleaseRanges(ranges, node.Name)
	for _, p := range t.Put {
		changes = append(changes, store.Change{Entry: p})
	}
	return changes, err
}

// markWith returns the mark of a removal with one more serial number.
func markWith(mark cluster.Removed, key string, serial cluster.Serial,
	admin ed25519.PrivateKey) (store.Entry, error) {
	if !slices.Contains(mark.Serials, serial) {
		mark.Serials = append(mark.Serials, serial)
	}
	slices.SortFunc(mark.Serials, cluster.Serial.Compare)
	mark.Signature = nil
	if admin != nil {
		if err := mark.Sign(key, admin); err != nil {
			return store.Entry{}, err
		}
	}
	return entry(key, &mark)
}
