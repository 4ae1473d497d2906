package overlay

import (
	"net/netip"

	"github.com/weirnet/weir/udp"
)

// senderBuffer is the size of the kernel's buffer of what waits to leave to one peer.
const senderBuffer = 4 << 20

// familyOf is the index of an address's IP version.
func familyOf(a netip.Addr) int {
	if a.Is4() || a.Is4In6() {
		return 0
	}
	return 1
}

// senderTo returns the socket for data to a peer, or for all that strangers get. It is the peer's
// own: when a link is slow, what waits there counts against those peers alone, and the others are
// not delayed. Nor are handshakes, which leave by the socket that receives.
func (b *bind) senderTo(p *peerEndpoint, a netip.Addr) *udp.Conn {
	family := familyOf(a)
	if c := p.senders[family].Load(); c != nil {
		return c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := p.senders[family].Load(); c != nil {
		return c
	}
	all := b.v4
	if family == 1 {
		all = b.v6
	}
	if all == nil || p != &b.strangers && b.peers[p.key] != p {
		return all // closed, or the peer is removed
	}
	var c *udp.Conn
	err := b.ns.Do(func() (err error) {
		c, err = all.OpenSender(udp.Config{WriteBuffer: senderBuffer, Mark: b.mark,
			NoGSO: !b.offload})
		return err
	})
	if err != nil {
		// such as too many open files: this peer shares a buffer with others then
		if more, ok := b.logLimit.may(kind{what: "sender"}, b.now()); ok {
			b.log.Warn("a peer has no socket of its own", "peer", p.key.String(), "err", err,
				"not_logged_before", more)
		}
		return all
	}
	if family == 0 {
		allowFragments(c)
	}
	p.senders[family].Store(c)
	return c
}

// closeSenders closes the sockets of a peer. The caller holds mu.
func (b *bind) closeSenders(p *peerEndpoint) {
	for i := range p.senders {
		if c := p.senders[i].Swap(nil); c != nil {
			c.Close()
		}
	}
}

// senders returns the open sockets of all peers. The caller holds mu.
func (b *bind) senders() (list []*udp.Conn) {
	add := func(p *peerEndpoint) {
		for i := range p.senders {
			if c := p.senders[i].Load(); c != nil {
				list = append(list, c)
			}
		}
	}
	for _, p := range b.peers {
		add(p)
	}
	add(&b.strangers)
	return list
}
