package host

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/firewall"
)

// localRoutes returns what local routes lead to, apart from the host's addresses, by interface.
func localRoutes() (map[int][]netip.Prefix, error) {
	list, err := routes.Local()
	if err != nil {
		return nil, err
	}
	all := map[int][]netip.Prefix{}
	for _, r := range list {
		all[r.Link] = append(all[r.Link], r.Dst)
	}
	for _, prefixes := range all {
		slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
			return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
		})
	}
	return all, nil
}

// FollowLocal reads the local routes again. The host takes packets to what they lead to: rules with
// me are about it. One goroutine calls it.
func (l *Links) FollowLocal() error {
	now, err := l.routes()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.local
	l.local = now
	changed := false
	for index := range maps.Keys(l.byID) {
		if !slices.Equal(before[index], now[index]) {
			changed = l.noteLocked(index) || changed
		}
	}
	if changed && l.synced {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// IsMe reports whether rules take an address for me: one of the host's, or one at which it takes
// packets without having it.
func (l *Links) IsMe(a netip.Addr) bool {
	return slices.ContainsFunc(l.Interfaces(), func(i firewall.Interface) bool {
		return i.IsMine(a)
	})
}
