package members

import (
	"fmt"
	"slices"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// replaceKeys has the list of keys that this host believes take the place of what a thief of the
// store has written, with those before it, by which hosts follow that were away. If this host knows
// of no keys, there are none, and no one signs.
func (b *backup) replaceKeys(why error) error {
	at := slices.IndexFunc(b.entries, func(e store.Entry) bool { return e.Key == cluster.KeysKey })
	if !b.list.Locked() {
		b.entries = slices.Delete(b.entries, at, at+1)
		b.replaced = append(b.replaced, fmt.Sprintf("%s is left out: %v", cluster.KeysKey, why))
		return nil
	}
	var doc cluster.AdminKeys
	for _, l := range b.keys.Lists {
		if l.Count < b.list.Count {
			doc.Add(l)
		}
	}
	doc.Add(b.list)
	e, err := entry(cluster.KeysKey, &doc)
	if err != nil { // lists before it are a thief's, too
		e, err = entry(cluster.KeysKey, &cluster.AdminKeys{Lists: []cluster.KeyList{b.list}})
	}
	b.entries[at] = e
	b.replaced = append(b.replaced, fmt.Sprintf("%s has list %d, as this host knows it: %v",
		cluster.KeysKey, b.list.Count, why))
	return err
}
