package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
)

// LabelsLeft names the tables of labels that have an address as a member, as an earlier engine has
// left them, for an agent that has lost its record. After the first Load there are none.
func (e *Engine) LabelsLeft(a netip.Addr) (names []string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.pending() || !a.IsValid() {
		return nil, nil
	}
	for name, id := range e.nameIDs.ids[nameTable] {
		if !isLabel(name) {
			continue
		}
		var m *ebpf.Map
		err := e.objects.Tables.Lookup(id, &m)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		}
		var value uint32
		if err == nil {
			err = errors.Join(m.Lookup(trieKey(netip.PrefixFrom(a, a.BitLen())), &value), m.Close())
		}
		switch {
		case err == nil:
			names = append(names, name)
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
	}
	slices.Sort(names)
	return names, nil
}
