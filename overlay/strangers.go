package overlay

import (
	"net/netip"
	"sync"
	"time"
)

// knownFor is how long a list of the addresses of peers is used, ns: strangers decide how often
// it is asked for.
const knownFor = int64(time.Second)

// addrsOfPeers finds peers by the addresses at which they were heard or may be.
type addrsOfPeers struct {
	mu    sync.Mutex
	made  int64                  // guarded by mu; when, 0 for never
	peers map[netip.AddrPort]Key // guarded by mu
}

// sendCookie sends cookies to who began a handshake, a peer or not. Strangers, who may write any
// source into their packets, can keep the socket full that all of them share, behind a slow link
// or to addresses that no host has. What goes to the address of a peer then leaves by the socket of
// that peer: without a cookie no handshake of its own succeeds as long as this node is under load.
func (b *bind) sendCookie(s *batch, n int, e *remoteEndpoint) error {
	s.peer = &b.strangers
	err := b.sendOver(s, n, &e.path)
	if err != nil || s.unsent == 0 {
		return err
	}
	p := b.peerAt(e.addr)
	if p == nil {
		return nil
	}
	s.peer, s.unsent, s.full = p, 0, 0
	return b.sendOver(s, n, &e.path)
}

// peerAt returns the peer with an address, or nil. What has changed in the last second it may not
// know.
func (b *bind) peerAt(a netip.AddrPort) *peerEndpoint {
	k := &b.known
	k.mu.Lock()
	if now := b.now(); k.made == 0 || now-k.made > knownFor {
		k.made, k.peers = now, map[netip.AddrPort]Key{}
		for _, p := range b.allPeers() {
			if cur := p.current.Load(); cur != nil {
				k.peers[cur.addr] = p.key
			}
			for _, a := range p.others(nil) {
				k.peers[a] = p.key
			}
		}
	}
	key, is := k.peers[a]
	k.mu.Unlock()
	if !is {
		return nil
	}
	return b.peerOf(key)
}
