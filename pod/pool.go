package pod

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/internal/podrange"
)

// ErrPoolEmpty means that every address of a range is in use.
var ErrPoolEmpty = errors.New("no free address")

// Pool hands out the addresses of one range. The zero address and the first one (the gateway) are
// never handed out. Nor is the last one of an IPv4 range (its broadcast address, which some
// programs refuse to use). A Pool is not safe for concurrent use.
type Pool struct {
	prefix netip.Prefix
	used   map[netip.Addr]bool
	next   netip.Addr // where the next search starts: an address is reused as late as possible
}

// NewPool makes a pool of the addresses of p. Ranges with fewer than two usable addresses, and
// those with special ones, are refused.
func NewPool(p netip.Prefix) (*Pool, error) {
	if !p.IsValid() || p.Addr().Is4In6() {
		return nil, fmt.Errorf("pod range %s: not a prefix", p)
	}
	if p != p.Masked() {
		return nil, fmt.Errorf("pod range %s: has host bits; write %s", p, p.Masked())
	}
	if p.Addr().BitLen()-p.Bits() < 2 {
		return nil, fmt.Errorf("pod range %s: too small; a range needs at least four addresses", p)
	}
	if special, ok := podrange.Special(p); ok {
		return nil, fmt.Errorf("pod range %s: overlaps %s, whose addresses no container can "+
			"have; take a private range such as 10.88.0.0/24 or fd00:88::/120", p, special)
	}
	pool := &Pool{prefix: p, used: make(map[netip.Addr]bool)}
	pool.next = pool.Gateway().Next()
	return pool, nil
}

// Prefix returns the range.
func (p *Pool) Prefix() netip.Prefix { return p.prefix }

// Gateway returns the host's own address in the range, the first one.
func (p *Pool) Gateway() netip.Addr { return p.prefix.Addr().Next() }

// Allocate marks one address as used. It fails when the address is not of the range, is reserved,
// or is in use.
func (p *Pool) Allocate(a netip.Addr) error {
	switch {
	case !p.prefix.Contains(a):
		return fmt.Errorf("address %s is not in the pod range %s", a, p.prefix)
	case p.reserved(a):
		return fmt.Errorf("address %s is reserved in the pod range %s", a, p.prefix)
	case p.used[a]:
		return fmt.Errorf("address %s is in use by another pod", a)
	}
	p.used[a] = true
	return nil
}

// AllocateAny chooses a free address and marks it as used. It goes round the range, so that a
// released address is reused after all others.
func (p *Pool) AllocateAny() (netip.Addr, error) {
	first := p.next
	for a := first; ; {
		free := !p.used[a] && !p.reserved(a)
		next := p.after(a)
		if free {
			p.used[a] = true
			p.next = next
			return a, nil
		}
		if a = next; a == first {
			return netip.Addr{}, fmt.Errorf("pod range %s: %w: %d in use; [pods] ranges of "+
				"weir.toml can name a larger one", p.prefix, ErrPoolEmpty, len(p.used))
		}
	}
}

// Full reports whether no address is free.
func (p *Pool) Full() bool {
	bits, reserved := p.prefix.Addr().BitLen()-p.prefix.Bits(), 2
	if p.prefix.Addr().Is4() {
		reserved = 3
	}
	return bits < 32 && len(p.used) >= 1<<bits-reserved
}

// Free releases an address. Unknown ones are ignored.
func (p *Pool) Free(a netip.Addr) { delete(p.used, a) }

// after is the address that follows a in the range, going round.
func (p *Pool) after(a netip.Addr) netip.Addr {
	if n := a.Next(); n.IsValid() && p.prefix.Contains(n) {
		return n
	}
	return p.prefix.Addr()
}

func (p *Pool) reserved(a netip.Addr) bool {
	if a == p.prefix.Addr() || a == p.Gateway() {
		return true
	}
	return a.Is4() && !p.prefix.Contains(a.Next())
}
