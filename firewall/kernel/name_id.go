package kernel

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Kinds of names.
const (
	nameTable = iota + 1
	nameFlow
)

// How many ids there are of each: the slots of the map of tables, and the values of a byte less
// AnyFlow.
var nameLimits = map[uint32]uint32{nameTable: 8192, nameFlow: 255}

// nameIDs give names stable ids, so that what the kernel holds keeps its meaning across Programs
// and agents. They are written to a map.
type nameIDs struct {
	m    *ebpf.Map
	ids  map[uint32]map[string]uint32 // by kind
	used map[uint32]map[uint32]string
}

func readNameIDs(m *ebpf.Map) (*nameIDs, error) {
	l := &nameIDs{m: m, ids: map[uint32]map[string]uint32{}, used: map[uint32]map[uint32]string{}}
	for kind := range nameLimits {
		l.ids[kind], l.used[kind] = map[string]uint32{}, map[uint32]string{}
	}
	var k weirNameIdKey
	var v weirNameId
	all := m.Iterate()
	for all.Next(&k, &v) {
		name, _, _ := bytes.Cut(v.Name[:], []byte{0})
		if l.ids[k.Kind] != nil {
			l.ids[k.Kind][string(name)] = k.Id
			l.used[k.Kind][k.Id] = string(name)
		}
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("read the names in the kernel: %w", err)
	}
	if _, ok := l.ids[nameFlow]["default"]; !ok {
		return l, l.put(nameFlow, 0, "default")
	}
	return l, nil
}

// id returns the id of a name, a new one if it has none.
func (l *nameIDs) id(kind uint32, name string) (uint32, error) {
	if id, ok := l.ids[kind][name]; ok {
		return id, nil
	}
	for id := range nameLimits[kind] {
		if _, taken := l.used[kind][id]; !taken {
			return id, l.put(kind, id, name)
		}
	}
	return 0, fmt.Errorf("%q: there are %d names, the maximum", name, nameLimits[kind])
}

// reserve returns unused ids for some names, which may have one already: a name's present id stays
// valid.
func (l *nameIDs) reserve(kind uint32, n int) ([]uint32, error) {
	free := make([]uint32, 0, n)
	for id := uint32(0); len(free) < n; id++ {
		if id == nameLimits[kind] {
			return nil, fmt.Errorf("more than %d names at once", nameLimits[kind])
		}
		if _, taken := l.used[kind][id]; !taken {
			free = append(free, id)
		}
	}
	return free, nil
}

// give frees an id.
func (l *nameIDs) give(kind, id uint32) error {
	name := l.used[kind][id]
	if err := l.m.Delete(weirNameIdKey{Kind: kind, Id: id}); err != nil &&
		!errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove the name %q from the kernel: %w", name, err)
	}
	delete(l.used[kind], id)
	if l.ids[kind][name] == id {
		delete(l.ids[kind], name)
	}
	return nil
}

func (l *nameIDs) put(kind, id uint32, name string) error {
	v := weirNameId{}
	if len(name) >= len(v.Name) {
		return fmt.Errorf("%q: a name has at most %d bytes", name, len(v.Name)-1)
	}
	copy(v.Name[:], name)
	if err := l.m.Put(weirNameIdKey{Kind: kind, Id: id}, v); err != nil {
		return fmt.Errorf("write the name %q to the kernel: %w", name, err)
	}
	l.ids[kind][name], l.used[kind][id] = id, name
	return nil
}

// drop frees the ids of a kind for which keep is false.
func (l *nameIDs) drop(kind uint32, keep func(name string) bool) error {
	for name, id := range l.ids[kind] {
		if keep(name) {
			continue
		}
		if err := l.give(kind, id); err != nil {
			return err
		}
	}
	return nil
}

// name returns the name behind an id.
func (l *nameIDs) name(kind, id uint32) string { return l.used[kind][id] }
