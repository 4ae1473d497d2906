package members

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// replaceKeys has the list of keys that this host believes take the place of what an attacker in
// the store has written, or of what an older backup has. The lists before it come along, by which
// hosts follow that were away. If this host knows of no keys, there are none, and no one signs.
func (b *backup) replaceKeys(why error) error {
	b.entries = slices.DeleteFunc(b.entries, func(e store.Entry) bool {
		return e.Key == cluster.KeysKey
	})
	if !b.list.Locked() {
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
	if err != nil { // lists before it are an attacker's, or there is a gap
		e, err = entry(cluster.KeysKey, &cluster.AdminKeys{Lists: []cluster.KeyList{b.list}})
	}
	b.entries = append(b.entries, e)
	if !errors.Is(why, cluster.ErrOutdated) {
		b.replaced = append(b.replaced, fmt.Sprintf("%s has list %d, as this host knows it: %v",
			cluster.KeysKey, b.list.Count, why))
	}
	return err
}
