package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// SetInterfaces tells the interfaces of the host with their addresses, see firewall.Engine.
func (e *Engine) SetInterfaces(ifs []firewall.Interface) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.ifs
	if !e.told { // what an earlier engine has written is anything
		old = nil
	}
	changed := map[uint32]firewall.Interface{}
	addresses, kept := !e.told, 0
	for _, i := range ifs {
		o, known := old[i.Index]
		if known {
			kept++
		}
		if !known || o.Name != i.Name || !slices.Equal(o.Addrs, i.Addrs) {
			changed[i.Index] = i
			addresses = addresses || len(o.Addrs)+len(i.Addrs) > 0
		}
	}
	if e.told && kept == len(old) && len(changed) == 0 {
		return nil
	}
	now, gone := make(map[uint32]firewall.Interface, len(ifs)), []uint32{}
	for _, i := range ifs {
		now[i.Index] = i
	}
	for index, o := range old {
		if _, there := now[index]; !there {
			gone, addresses = append(gone, index), addresses || len(o.Addrs) > 0
		}
	}
	e.ifs = now
	err := e.tellInterfacesLocked(changed, gone, addresses)
	e.told = err == nil
	return err
}

// tellInterfacesLocked writes what has changed. What is new comes first and what is gone goes last: an address that moves is never missing.
func (e *Engine) tellInterfacesLocked(changed map[uint32]firewall.Interface, gone []uint32, addresses bool) error {
	if err := e.putInterfacesLocked(changed, e.prog, e.slot(), 3); err != nil {
		return err
	}
	for _, index := range gone {
		if err := e.objects.Ifaces.Delete(index); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	if !e.told {
		if err := prune(e.objects.Ifaces, func(index uint32) bool { _, ok := e.ifs[index]; return ok }); err != nil {
			return err
		}
	}
	if addresses {
		if err := e.putAddressesLocked(); err != nil {
			return err
		}
		if err := e.putNetworksLocked(); err != nil {
			return err
		}
	}
	return e.putCardsLocked()
}

// putInterfacesLocked writes the names of interfaces in the numbers of a Program: into the half of its parity, and keeps the
// other half, which packets may be reading, unless both are asked for.
func (e *Engine) putInterfacesLocked(ifs map[uint32]firewall.Interface, p *rule.Program, parity, halves uint32) error {
	names := map[string]uint32{}
	var globs []string
	if p != nil {
		for id, name := range p.Names {
			names[name] = uint32(id)
		}
		globs = p.Globs
	}
	for index, i := range ifs {
		var v weirIface
		if err := e.objects.Ifaces.Lookup(index, &v); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read interface %s: %w", i.Name, err)
		}
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
		if err := e.objects.Ifaces.Put(index, v); err != nil {
			return fmt.Errorf("write interface %s: %w", i.Name, err)
		}
	}
	return nil
}

// putAddressesLocked writes the addresses of the interfaces, and those of the host: with index 0.
func (e *Engine) putAddressesLocked() error {
	want := map[weirIfaceAddress]bool{}
	for index, i := range e.ifs {
		for _, a := range i.Addrs {
			k := weirIfaceAddress{}
			k.Addr.Hi, k.Addr.Lo = packet.Words(a.Addr())
			want[k] = true
			k.Ifindex = index
			want[k] = true
		}
	}
	for k := range want {
		if err := e.objects.Addresses.Put(k, uint32(1)); err != nil {
			return fmt.Errorf("write the addresses of the host: %w", err)
		}
	}
	return prune(e.objects.Addresses, func(k weirIfaceAddress) bool { return want[k] })
}

// putNetworksLocked writes which networks which interfaces are connected to.
func (e *Engine) putNetworksLocked() error {
	want := map[weirTableKey]weirConnected{}
	for index, i := range e.ifs {
		for _, a := range i.Addrs {
			k := trieKey(a.Masked())
			want[k] = connect(want[k], index)
		}
	}
	for k, v := range want {
		if e.networks[k] == v {
			continue
		}
		if err := e.objects.Networks.Put(k, v); err != nil {
			return fmt.Errorf("write the networks of the host: %w", err)
		}
	}
	e.networks = maps.Clone(want)
	return prune(e.objects.Networks, func(k weirTableKey) bool { _, ok := want[k]; return ok })
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

// Flags of weirRoute.
const (
	routeBlackhole = 1
	routeDefault   = 2
)

// SetRoutes tells the routes of the host: verrevpath and versrcreach ask about them. Of several routes to one prefix the first counts.
func (e *Engine) SetRoutes(routes []firewall.Route) error {
	e.mu.Lock()
	defer e.mu.Unlock()
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
