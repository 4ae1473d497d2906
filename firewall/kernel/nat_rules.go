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

// Rules with nat name instances, whose addresses and ports lie in the maps of the settings
// [[masquerade]] and [[forward]]: in the trie of translated sources under keys that hold the number
// of the instance, and among the published ports as a kind of their own. An instance that has the
// address of an interface follows it.

// ruled is what the maps hold of instances.
type ruled struct {
	sources map[weirTableKey]weirMaskedSource
	ports   map[weirPublishedKey]weirPublished
	addrs   map[netip.Addr]bool // that sources have on the wire
}

// newRuled lays instances out. It leaves out what it cannot give away, which is an error: a port
// that another instance gives away, what would lead to the host itself, and the only address of an
// interface.
func newRuled(all []program.NAT, ifs []firewall.Interface) (r ruled, err error) {
	r = ruled{map[weirTableKey]weirMaskedSource{}, map[weirPublishedKey]weirPublished{},
		map[netip.Addr]bool{}}
	own := newOwnAddresses(all, ifs)
	for i := range all {
		x := &all[i]
		flags := bit(x.Unreg)*maskUnreg | bit(x.UnregCGN)*maskUnregCGN
		r.hide(x.Number, netip.PrefixFrom(netip.IPv4Unspecified(), 0), addressOf(x, ifs), flags)
		for _, a := range x.Addrs {
			r.hide(x.Number, only(a.Local), a.Public, maskKeep)
			bad := own.refuse(x.Number, "redirect_addr", a.Local, a.Public)
			if bad == nil {
				bad = r.lead(x.Number, netip.AddrPortFrom(a.Public, 0), 0,
					netip.AddrPortFrom(a.Local, 0))
			}
			err = errors.Join(err, bad)
		}
		for _, p := range x.Ports {
			bad := own.refuse(x.Number, "redirect_port", p.To.Addr(), netip.Addr{})
			if bad == nil {
				bad = r.leadPorts(x.Number, p, addressOf(x, ifs))
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

// hide has an instance give sources an address, none if it is invalid: then they are dropped.
func (r *ruled) hide(number uint16, from netip.Prefix, to netip.Addr, flags uint32) {
	k := trieKey(from)
	k.Family[1], k.Family[2] = byte(number), byte(number>>8)
	v := weirMaskedSource{Flags: maskBehind | flags}
	if to.IsValid() {
		v.To = wordsOf(to)
		r.addrs[to] = true
	}
	r.sources[k] = v
}

// lead has a port of an instance lead elsewhere; all of an address without protocol and ports.
func (r *ruled) lead(number uint16, at netip.AddrPort, proto packet.Proto,
	to netip.AddrPort) error {
	if !at.Addr().IsValid() {
		return nil
	}
	k := weirPublishedKey{Addr: wordsOf(at.Addr()), Port: at.Port(), Proto: uint8(proto)}
	if _, double := r.ports[k]; double {
		return fmt.Errorf("nat %d: %s %s is redirected twice", number, proto, at)
	}
	r.ports[k] = weirPublished{Addr: wordsOf(to.Addr()),
		Port: uint32(number)<<16 | uint32(to.Port()), Kind: toRuled}
	return nil
}

// leadPorts has the ports of a redirection lead elsewhere. It returns the first of its errors.
func (r *ruled) leadPorts(number uint16, p program.NATPort, own netip.Addr) (first error) {
	if p.Alias.IsValid() {
		own = p.Alias
	}
	for n := range p.Count {
		err := r.lead(number, netip.AddrPortFrom(own, p.Port+uint16(n)), packet.Proto(p.Proto),
			netip.AddrPortFrom(p.To.Addr(), p.To.Port()+uint16(n)))
		if first == nil {
			first = err
		}
	}
	return first
}

// with returns r and what o has besides.
func (r ruled) with(o ruled) ruled {
	all := ruled{maps.Clone(o.sources), maps.Clone(o.ports), maps.Clone(o.addrs)}
	if all.sources == nil {
		return r
	}
	maps.Copy(all.sources, r.sources)
	maps.Copy(all.ports, r.ports)
	maps.Copy(all.addrs, r.addrs)
	return all
}

func (r ruled) equal(o ruled) bool {
	return maps.Equal(r.sources, o.sources) && maps.Equal(r.ports, o.ports)
}

// beginRuledLocked writes what the next Program asks for, beside what the one in force does. One
// that returns is not refused for what cannot be given away: addresses may have changed meanwhile,
// and at a start the settings may not be known yet. Nor is one while something is held already:
// most loads change other rules. FollowNAT tries again.
func (e *Engine) beginRuledLocked(p *program.Program) (next ruled, err error) {
	if !e.ruledKnown && e.takenOver { // an error leaves what an earlier engine has written
		if e.ruled, err = e.readRuledLocked(); err != nil {
			return next, err
		}
	}
	next, err = newRuled(p.NATs, e.ifs)
	if e.prog == nil || p.Returns || e.ruledHeld != nil {
		both := next.with(e.ruled)
		held, bad := e.putFreeLocked(both)
		maps.DeleteFunc(next.ports, func(k weirPublishedKey, _ weirPublished) bool {
			_, free := both.ports[k]
			return !free
		})
		e.ruledHeld = errors.Join(err, held)
		return next, bad
	}
	if err != nil {
		return next, err
	}
	if err = e.putRuledLocked(next.with(e.ruled)); err == nil {
		e.ruledHeld = nil
	}
	return next, err
}

// putFreeLocked is putRuledLocked for what remains of r without the ports that others have: these
// are held.
func (e *Engine) putFreeLocked(r ruled) (held, err error) {
	err = e.putRuledLocked(r)
	var taken *forward.TakenError
	if !errors.As(err, &taken) {
		return nil, err
	}
	for _, p := range taken.Ports {
		delete(r.ports, weirPublishedKey{Addr: wordsOf(p.Host.Addr()), Port: p.Host.Port(),
			Proto: uint8(p.Proto)})
	}
	return taken, e.putRuledLocked(r)
}

// endRuledLocked takes away what the Program in force does not ask for, with its connections.
func (e *Engine) endRuledLocked(next ruled) error {
	if err := e.putRuledLocked(next); err != nil {
		return err
	}
	ended := e.withdrawals.made != e.withdrawals.done
	for a := range e.ruled.addrs {
		ended = ended || !next.addrs[a]
	}
	e.ruled, e.ruledKnown = next, true
	if !ended || e.withdrawals.masquerade == nil {
		return nil
	}
	return e.endUnwantedLocked()
}

// followRuledLocked gives the instances the addresses that their interfaces have now. What cannot
// be given away is held: it keeps nothing else back.
func (e *Engine) followRuledLocked() {
	e.ruledHeld = nil
	if e.prog == nil || len(e.prog.NATs) == 0 {
		return
	}
	next, left := newRuled(e.prog.NATs, e.ifs)
	if left == nil && next.equal(e.ruled) {
		return
	}
	held, err := e.putFreeLocked(next)
	if err == nil {
		err = e.endRuledLocked(next)
	}
	e.ruledHeld = errors.Join(left, held, err)
}

// FollowNAT retries the ports and addresses that an instance of nat could not get. It returns those
// that it still could not get.
func (e *Engine) FollowNAT() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ruledHeld != nil {
		e.followRuledLocked()
	}
	return e.ruledHeld
}

// putRuledLocked writes the maps.
func (e *Engine) putRuledLocked(r ruled) error {
	if e.ruledKnown && r.equal(e.ruled) && r.equal(e.ruledPut) {
		return nil
	}
	if !e.ruledKnown && !e.takenOver && len(r.sources)+len(e.ruledPut.sources) == 0 {
		e.withdrawals.known[toRuled] = true
		e.ruledPut = r
		return nil
	}
	e.ruledPut = r
	ports := map[weirPublishedKey]weirPublished{}
	maps.Copy(ports, r.ports)
	if err := e.putPublishedLocked(ports, toRuled); err != nil {
		return err
	}
	return e.putRuledSourcesLocked()
}

// readRuledLocked returns what the maps hold of instances.
func (e *Engine) readRuledLocked() (r ruled, err error) {
	r = ruled{map[weirTableKey]weirMaskedSource{}, map[weirPublishedKey]weirPublished{},
		map[netip.Addr]bool{}}
	sources, err := e.maskedLocked()
	if err != nil {
		return r, err
	}
	for k, v := range sources {
		if k.ruled() {
			r.sources[k] = v
			r.addrs[v.To.addr()] = true
		}
	}
	ports, err := readAll[weirPublishedKey, weirPublished](e.objects.Published)
	if err != nil {
		return r, fmt.Errorf("read the published ports: %w", err)
	}
	maps.DeleteFunc(ports, func(_ weirPublishedKey, v weirPublished) bool {
		return v.Kind != toRuled
	})
	r.ports = ports
	return r, nil
}
