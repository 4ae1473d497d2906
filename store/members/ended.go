package members

import (
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// withoutEnded returns the entries of a backup without what hosts, admins and feeds had that were
// ended since: an old backup gives them no rights back.
func withoutEnded(entries []store.Entry, ended []cluster.Serial, admin ed25519.PrivateKey) (
	[]store.Entry, error) {
	all := store.NewCopy(store.Snapshot{Entries: entries})
	is := map[cluster.Serial]bool{}
	for _, s := range ended {
		is[s] = true
	}
	for _, e := range entries {
		for _, s := range cluster.EndedBy(e) {
			is[s] = true
		}
	}
	var changes []store.Change
	put := func(e store.Entry) { changes = append(changes, store.Change{Entry: e}) }
	for _, e := range entries {
		switch {
		case e.Key == cluster.IssuedKey:
			issued, err := cluster.Decode[cluster.Issued](e.Value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.Key, err)
			}
			issued.End(func(c cluster.IssuedCertificate) bool { return is[c.Serial] })
			if e, err = entry(e.Key, &issued); err != nil {
				return nil, err
			}
			put(e)
		case strings.HasPrefix(e.Key, cluster.NodeTree):
			node, err := cluster.Decode[cluster.Node](e.Value)
			if err != nil || !is[node.Serial] {
				continue // hosts check it again
			}
			gone, err := withoutHost(entries, all, node, admin)
			if err != nil {
				return nil, err
			}
			changes = append(changes, gone...)
		}
	}
	all.Apply(store.Batch{Changes: changes})
	return all.Snapshot().Entries, nil
}

// withoutHost returns what the removal of a host changes in a backup.
func withoutHost(entries []store.Entry, all *store.Copy, node cluster.Node,
	admin ed25519.PrivateKey) (changes []store.Change, err error) {
	var ranges store.Snapshot
	for _, e := range entries {
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
		if mark, err = cluster.Decode[cluster.Removed](e.Value); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	e, err := markWith(mark, key, node.Serial, admin)
	if err != nil {
		return nil, err
	}
	changes = append(changes, store.Change{Entry: e})
	t, err := cluster.Release(ranges, node.Name)
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
