package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// SetInterfaces sets the interfaces of the host with their addresses, see firewall.Engine. There
// may be thousands. Only the changes are written to the kernel.
func (e *Engine) SetInterfaces(ifs []firewall.Interface) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := slices.SortedFunc(slices.Values(ifs), firewall.CompareInterfaces)
	if e.staged != nil { // the first Load writes them
		e.ifs = now
		return nil
	}
	old := e.ifs
	if !e.synced { // what an earlier engine has written is unknown
		old = nil
	}
	changed, gone := firewall.DiffInterfaces(old, now)
	if e.synced && len(changed)+len(gone) == 0 {
		return nil
	}
	addresses := !e.synced
	for _, i := range slices.Concat(changed, gone) {
		before, _ := interfaceOf(old, i.Index)
		addresses = addresses ||
			len(before.Addrs)+len(i.Addrs)+len(before.Local)+len(i.Local) > 0
	}
	e.ifs = now
	err := errors.Join(e.updateInterfacesLocked(changed, gone, addresses), e.changedLocked())
	e.synced = err == nil
	return err
}

// interfaceOf finds an interface in a list in order of index.
func interfaceOf(ifs []firewall.Interface, index uint32) (firewall.Interface, bool) {
	at, found := slices.BinarySearchFunc(ifs, firewall.Interface{Index: index},
		firewall.CompareInterfaces)
	if !found {
		return firewall.Interface{}, false
	}
	return ifs[at], true
}

// updateInterfacesLocked writes what has changed. It adds first and deletes last: an address that
// moves is never missing.
func (e *Engine) updateInterfacesLocked(changed, gone []firewall.Interface, addresses bool) error {
	if err := e.putInterfacesLocked(changed, e.prog, e.slot(), 3); err != nil {
		return err
	}
	for _, i := range gone {
		if err := e.objects.Ifaces.Delete(i.Index); err != nil &&
			!errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	if !e.synced {
		if err := prune(e.objects.Ifaces, func(index uint32) bool {
			_, ok := interfaceOf(e.ifs, index)
			return ok
		}); err != nil {
			return err
		}
	}
	return e.putHostLocked(changed, gone, addresses)
}

// putHostLocked writes the facts about interfaces apart from their names, which depend on the
// rules. addresses reports that addresses may have changed.
func (e *Engine) putHostLocked(changed, gone []firewall.Interface, addresses bool) error {
	sysctls, err := e.putIfaceSysctlsLocked(changed, gone)
	if err != nil {
		return err
	}
	if addresses {
		if err := e.putAddressesLocked(); err != nil {
			return err
		}
		if err := e.putNetworksLocked(); err != nil {
			return err
		}
		e.followNATEntriesLocked()
		e.chooseOwnLocked()
		// written by changedLocked, or with the first rules
		e.config.Own, e.config.Local = ownBits(e.ifs)
	}
	if addresses || len(gone) > 0 || sysctls {
		if err := e.putForwardingLocked(); err != nil {
			return err
		}
	}
	if !e.synced {
		return e.putNICsLocked()
	}
	for _, i := range slices.Concat(changed, gone) {
		if err := e.putNICLocked(i.Index); err != nil {
			return err
		}
	}
	return nil
}

// putInterfacesLocked writes the names of interfaces in the numbers of a Program. It writes the
// half of the Program's parity. It keeps the other half, which packets may be reading, unless both
// are asked for.
func (e *Engine) putInterfacesLocked(ifs []firewall.Interface, p *program.Program, parity,
	halves uint32) error {
	names := map[string]uint32{}
	var globs []string
	if p != nil {
		for id, name := range p.Names {
			names[name] = uint32(id)
		}
		globs = p.Globs
	}
	for _, i := range ifs {
		var v weirIface
		if err := e.objects.Ifaces.Lookup(i.Index, &v); err != nil &&
			!errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read interface %s: %w", i.Name, err)
		}
		v.Dhcp = bit(i.UsesDHCP())*dhcpClient | bit(!i.HasAddress4())*dhcpNoAddress |
			bit(i.Tunnel)*ifaceTunnel
		for half := range uint32(2) {
			if halves&(1<<half) == 0 {
				continue
			}
			if v.Name[half], v.Globs[half] = 0, 0; half != parity {
				continue
			}
			if id, ok := names[i.Name]; ok {
				v.Name[half] = id + 1
			}
			for g, pattern := range globs {
				if rule.Glob(pattern, i.Name) {
					v.Globs[half] |= 1 << g
				}
			}
		}
		if err := e.objects.Ifaces.Put(i.Index, v); err != nil {
			return fmt.Errorf("write interface %s: %w", i.Name, err)
		}
	}
	return nil
}

// putAddressesLocked writes the addresses of the interfaces, and those of the host: with index 0.
func (e *Engine) putAddressesLocked() error {
	want := map[weirIfaceAddress]uint32{}
	for _, i := range e.ifs {
		for _, p := range i.Mine() {
			if p.IsSingleIP() {
				want[weirIfaceAddress{Addr: wordsOf(p.Addr())}] = 1
			}
		}
		for _, a := range i.Addrs {
			want[weirIfaceAddress{Addr: wordsOf(a.Addr()), Ifindex: i.Index}] = 1
		}
	}
	for k := range e.services { // also before the watch of the interfaces has seen them
		want[weirIfaceAddress{Addr: k.Addr}] = 1
	}
	err := putDifference(e.objects.Addresses, e.addresses, want)
	if e.addresses = want; err != nil {
		e.addresses = nil
		return fmt.Errorf("write the addresses of the host: %w", err)
	}
	return nil
}

// putNetworksLocked writes which networks which interfaces are connected to, and what is the host's
// by local routes: is_mine in bpf/lib/cond.h.
func (e *Engine) putNetworksLocked() error {
	want := map[weirTableKey]weirConnected{}
	for _, i := range e.ifs {
		for _, a := range i.Addrs {
			k := trieKey(a.Masked())
			want[k] = connect(want[k], i.Index)
		}
		for _, p := range i.Mine() {
			if k := trieKey(p); !p.IsSingleIP() {
				k.Family[1] = 1
				want[k] = weirConnected{}
			}
		}
	}
	err := putDifference(e.objects.Networks, e.networks, want)
	if e.networks = want; err != nil {
		e.networks = nil
		return fmt.Errorf("write the networks of the host: %w", err)
	}
	return nil
}

// putDifference makes a map hold want. It holds old, or anything when old is nil. What is gone goes
// last.
func putDifference[K, V comparable](m *ebpf.Map, old, want map[K]V) error {
	for k, v := range want {
		if o, there := old[k]; there && o == v {
			continue
		}
		if err := m.Put(k, v); err != nil {
			return err
		}
	}
	if old == nil {
		return prune(m, func(k K) bool { _, ok := want[k]; return ok })
	}
	for k := range old {
		if _, stays := want[k]; stays {
			continue
		}
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}

func connect(c weirConnected, index uint32) weirConnected {
	for i := range c.Ifindex {
		if c.Ifindex[i] == index {
			return c
		}
		if c.Ifindex[i] == 0 {
			c.Ifindex[i] = index
			return c
		}
	}
	c.More = 1
	return c
}

// readAll returns what a map holds.
func readAll[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	held := map[K]V{}
	var k K
	var v V
	all := m.Iterate()
	for all.Next(&k, &v) {
		held[k] = v
	}
	return held, all.Err()
}

// prune deletes the keys of a map that are not wanted.
func prune[K any](m *ebpf.Map, wanted func(K) bool) error {
	var k K
	var gone []K
	var v []byte
	all := m.Iterate()
	for all.Next(&k, &v) {
		if !wanted(k) {
			gone = append(gone, k)
		}
	}
	if err := all.Err(); err != nil {
		return err
	}
	for i := range gone {
		if err := m.Delete(&gone[i]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}

// SetRoutes sets the routes of the host: verrevpath and versrcreach ask about them. Of several
// routes to one prefix the first counts.
func (e *Engine) SetRoutes(routes []firewall.Route) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.staged != nil { // the first Load writes them
		routes = slices.Clone(routes)
		e.routes = &routes
		return nil
	}
	return errors.Join(e.putRoutesLocked(routes), e.changedLocked())
}

func (e *Engine) putRoutesLocked(routes []firewall.Route) error {
	want := map[weirTableKey]bool{}
	for _, r := range routes {
		k := trieKey(r.Dst)
		if want[k] {
			continue
		}
		want[k] = true
		v := weirRoute{Ifindex: r.Interface}
		if r.Blackhole {
			v.Flags |= routeBlackhole
		}
		if r.Dst.Bits() == 0 {
			v.Flags |= routeDefault
		}
		if err := e.objects.Routes.Put(k, v); err != nil {
			return fmt.Errorf("write the route to %s: %w", r.Dst, err)
		}
	}
	return prune(e.objects.Routes, func(k weirTableKey) bool { return want[k] })
}

// addrOf returns the address that two words of the kernel's tables stand for.
func addrOf(hi, lo uint64) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return netip.AddrFrom16(b).Unmap()
}
