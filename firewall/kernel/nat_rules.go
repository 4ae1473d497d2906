package kernel

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
)

// Rules with nat name instances. Their addresses and ports are in the maps of the settings
// [[masquerade]] and [[forward]]. The trie of translated sources has them under keys with the
// number of the instance, and the published ports have a kind for them. An instance that has the
// address of an interface follows it.

// natEntries is what the maps hold of instances.
type natEntries struct {
	sources map[weirTableKey]weirMaskedSource
	ports   map[weirPublishedKey]weirPublished
	addrs   map[netip.Addr]bool // that sources have on the wire
}

// newNATEntries lays instances out. It leaves out what it cannot give away, which is an error. That
// is a port that another instance gives away, what would lead to the host itself, and the only
// address of an interface.
func newNATEntries(all []program.NAT, ifs []firewall.Interface) (r natEntries, err error) {
	r = natEntries{map[weirTableKey]weirMaskedSource{}, map[weirPublishedKey]weirPublished{},
		map[netip.Addr]bool{}}
	own := newOwnAddresses(all, ifs)
	for i := range all {
		x := &all[i]
		flags := bit(x.Unreg)*maskUnreg | bit(x.UnregCGN)*maskUnregCGN
		r.addSource(x.Number, netip.PrefixFrom(netip.IPv4Unspecified(), 0), addressOf(x, ifs),
			flags)
		for _, a := range x.Addrs {
			r.addSource(x.Number, only(a.Local), a.Public, maskKeep)
			bad := own.refuse(x.Number, "redirect_addr", a.Local, a.Public)
			if bad == nil {
				bad = r.addPort(x.Number, netip.AddrPortFrom(a.Public, 0), 0,
					netip.AddrPortFrom(a.Local, 0))
			}
			err = errors.Join(err, bad)
		}
		for _, p := range x.Ports {
			bad := own.refuse(x.Number, "redirect_port", p.To.Addr(), netip.Addr{})
			if bad == nil {
				bad = r.addPorts(x.Number, p, addressOf(x, ifs))
			}
			err = errors.Join(err, bad)
		}
	}
	return r, err
}

// addressOf returns the address of an instance, an invalid one if its interface has none.
func addressOf(x *program.NAT, ifs []firewall.Interface) netip.Addr {
	if x.Iface == "" {
		return x.Addr
	}
	for _, i := range ifs {
		if i.Name == x.Iface {
			if w := visible(i, netip.Addr.Is4); w != (weirAddress{}) {
				return w.addr()
			}
		}
	}
	return netip.Addr{}
}

func only(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// addSource has an instance give sources an address, none if it is invalid: then they are dropped.
func (r *natEntries) addSource(number uint16, from netip.Prefix, to netip.Addr, flags uint32) {
	k := trieKey(from)
	k.Family[1], k.Family[2] = byte(number), byte(number>>8)
	v := weirMaskedSource{Flags: maskBehind | flags}
	if to.IsValid() {
		v.To = wordsOf(to)
		r.addrs[to] = true
	}
	r.sources[k] = v
}

// addPort has a port of an instance lead elsewhere; all of an address without protocol and ports.
func (r *natEntries) addPort(number uint16, at netip.AddrPort, proto packet.Proto,
	to netip.AddrPort) error {
	if !at.Addr().IsValid() {
		return nil
	}
	k := weirPublishedKey{Addr: wordsOf(at.Addr()), Port: at.Port(), Proto: uint8(proto)}
	if _, double := r.ports[k]; double {
		return fmt.Errorf("nat %d: %s %s is redirected twice", number, proto, at)
	}
	r.ports[k] = weirPublished{Addr: wordsOf(to.Addr()),
		Port: uint32(number)<<16 | uint32(to.Port()), Kind: toNATRule}
	return nil
}

// addPorts has the ports of a redirection lead elsewhere. It returns the first of its errors.
func (r *natEntries) addPorts(number uint16, p program.NATPort, own netip.Addr) (first error) {
	if p.Alias.IsValid() {
		own = p.Alias
	}
	for n := range p.Count {
		err := r.addPort(number, netip.AddrPortFrom(own, p.Port+uint16(n)), packet.Proto(p.Proto),
			netip.AddrPortFrom(p.To.Addr(), p.To.Port()+uint16(n)))
		if first == nil {
			first = err
		}
	}
	return first
}

// with returns r and what o has besides.
func (r natEntries) with(o natEntries) natEntries {
	all := natEntries{maps.Clone(o.sources), maps.Clone(o.ports), maps.Clone(o.addrs)}
	if all.sources == nil {
		return r
	}
	maps.Copy(all.sources, r.sources)
	maps.Copy(all.ports, r.ports)
	maps.Copy(all.addrs, r.addrs)
	return all
}

func (r natEntries) equal(o natEntries) bool {
	return maps.Equal(r.sources, o.sources) && maps.Equal(r.ports, o.ports)
}

// beginNATEntriesLocked writes what the next Program asks for, beside what the one in force does.
// One that returns is not refused for what cannot be given away: addresses may have changed
// meanwhile, and at a start the settings may not be known yet. Nor is one while something is held
// already: most loads change other rules. FollowNAT tries again.
func (e *Engine) beginNATEntriesLocked(p *program.Program) (next natEntries, err error) {
	if !e.natEntriesKnown && e.takenOver { // an error leaves what an earlier engine has written
		if e.natEntries, err = e.readNATEntriesLocked(); err != nil {
			return next, err
		}
	}
	next, err = newNATEntries(p.NATs, e.ifs)
	if e.prog == nil || p.Returns || e.natEntriesHeld != nil {
		both := next.with(e.natEntries)
		held, bad := e.putFreeLocked(both)
		maps.DeleteFunc(next.ports, func(k weirPublishedKey, _ weirPublished) bool {
			_, free := both.ports[k]
			return !free
		})
		e.natEntriesHeld = errors.Join(err, held)
		return next, bad
	}
	if err != nil {
		return next, err
	}
	if err = e.putNATEntriesLocked(next.with(e.natEntries)); err == nil {
		e.natEntriesHeld = nil
	}
	return next, err
}

// putFreeLocked is putNATEntriesLocked for what remains of r without the ports that others have:
// these are held.
func (e *Engine) putFreeLocked(r natEntries) (held, err error) {
	err = e.putNATEntriesLocked(r)
	var taken *forward.TakenError
	if !errors.As(err, &taken) {
		return nil, err
	}
	for _, p := range taken.Ports {
		delete(r.ports, weirPublishedKey{Addr: wordsOf(p.Host.Addr()), Port: p.Host.Port(),
			Proto: uint8(p.Proto)})
	}
	return taken, e.putNATEntriesLocked(r)
}

// endNATEntriesLocked takes away what the Program in force does not ask for, with its connections.
func (e *Engine) endNATEntriesLocked(next natEntries) error {
	if err := e.putNATEntriesLocked(next); err != nil {
		return err
	}
	ended := e.withdrawals.made != e.withdrawals.done
	for a := range e.natEntries.addrs {
		ended = ended || !next.addrs[a]
	}
	e.natEntries, e.natEntriesKnown = next, true
	if !ended || e.withdrawals.masquerade == nil {
		return nil
	}
	return e.endUnwantedLocked()
}

// followNATEntriesLocked gives the instances the addresses that their interfaces have now. What
// cannot be given away is held: it keeps nothing else back.
func (e *Engine) followNATEntriesLocked() {
	e.natEntriesHeld = nil
	if e.prog == nil || len(e.prog.NATs) == 0 {
		return
	}
	next, left := newNATEntries(e.prog.NATs, e.ifs)
	if left == nil && next.equal(e.natEntries) {
		return
	}
	held, err := e.putFreeLocked(next)
	if err == nil {
		err = e.endNATEntriesLocked(next)
	}
	e.natEntriesHeld = errors.Join(left, held, err)
}

// FollowNAT retries the ports and addresses that an instance of nat could not get. It returns those
// that it still could not get.
func (e *Engine) FollowNAT() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.natEntriesHeld != nil {
		e.followNATEntriesLocked()
	}
	return e.natEntriesHeld
}

// putNATEntriesLocked writes the maps.
func (e *Engine) putNATEntriesLocked(r natEntries) error {
	if e.natEntriesKnown && r.equal(e.natEntries) && r.equal(e.natEntriesPut) {
		return nil
	}
	if !e.natEntriesKnown && !e.takenOver && len(r.sources)+len(e.natEntriesPut.sources) == 0 {
		e.withdrawals.known[toNATRule] = true
		e.natEntriesPut = r
		return nil
	}
	e.natEntriesPut = r
	ports := map[weirPublishedKey]weirPublished{}
	maps.Copy(ports, r.ports)
	if err := e.putPublishedLocked(ports, toNATRule); err != nil {
		return err
	}
	return e.putNATSourcesLocked()
}

// readNATEntriesLocked returns what the maps hold of instances.
func (e *Engine) readNATEntriesLocked() (r natEntries, err error) {
	r = natEntries{map[weirTableKey]weirMaskedSource{}, map[weirPublishedKey]weirPublished{},
		map[netip.Addr]bool{}}
	sources, err := e.maskedLocked()
	if err != nil {
		return r, err
	}
	for k, v := range sources {
		if k.ofInstance() {
			r.sources[k] = v
			r.addrs[v.To.addr()] = true
		}
	}
	ports, err := readAll[weirPublishedKey, weirPublished](e.objects.Published)
	if err != nil {
		return r, fmt.Errorf("read the published ports: %w", err)
	}
	maps.DeleteFunc(ports, func(_ weirPublishedKey, v weirPublished) bool {
		return v.Kind != toNATRule
	})
	r.ports = ports
	return r, nil
}
