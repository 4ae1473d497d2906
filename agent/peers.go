package agent

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/overlay"
	"github.com/weirnet/weir/rule"
)

// peers are the other nodes that this one knows, and the tunnel to them, which is made for the first of them.
type peers struct {
	node   *Node
	tunnel atomic.Pointer[tunnel]
	ranges atomic.Pointer[[]netip.Prefix] // pods of all peers
	judged atomic.Bool                    // the interface of the tunnel's name is ours, and judged by the tunnel's engine

	mu     sync.Mutex
	byName map[string]overlay.Peer // guarded by mu; as recorded
	waits  map[string]error        // guarded by mu; why a peer cannot be reached yet
	fault  error                   // guarded by mu; why there is no tunnel although there should be
	unread error                   // guarded by mu; why the record could not be read
	closed bool                    // guarded by mu
	routes chan struct{}           // tells that the device has changed routes
	stop   chan struct{}
	done   sync.WaitGroup
}

// newPeers reads the record of peers. The tunnel is made by begin. A record that cannot be read is
// read again until it can, and not written before.
func newPeers(n *Node) *peers {
	p := &peers{node: n, byName: map[string]overlay.Peer{}, waits: map[string]error{}, routes: make(chan struct{}, 1),
		stop: make(chan struct{})}
	p.readLocked()
	return p
}

// readLocked reads the record.
func (p *peers) readLocked() {
	const about = "the peers are not known"
	r, err := readPeers(p.node.config.Paths.Peers())
	p.unread = err
	if err != nil {
		p.node.problemAbout(about, about+": "+err.Error(), "put the file right or remove it; it is read again")
	} else {
		p.node.solved(about)
		for _, one := range r.Peers {
			p.byName[one.Name] = one.peer()
		}
	}
	p.rangesLocked()
}

// rangesLocked notes the pod ranges of all peers for those who ask without the lock.
func (p *peers) rangesLocked() {
	var all []netip.Prefix
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		all = append(all, p.byName[name].Pods...)
	}
	p.ranges.Store(&all)
}

// has says whether an address is in the pod ranges of a peer.
func (p *peers) has(a netip.Addr) bool {
	return slices.ContainsFunc(*p.ranges.Load(), func(r netip.Prefix) bool { return r.Contains(a) })
}

// retryEvery is how often what failed is tried again: a tunnel, or a peer whose network is not there yet.
const retryEvery = 5 * time.Second

// begin brings the peers of an earlier run back. What goes wrong is shown by the status and tried again.
func (p *peers) begin() {
	p.mu.Lock()
	p.restoreLocked()
	p.mu.Unlock()
	p.done.Go(p.watch)
}

// watch makes the tunnel again when its interface was taken away, and tries again what failed.
func (p *peers) watch() {
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		var ended <-chan struct{}
		if t := p.tunnel.Load(); t != nil {
			ended = t.device.Done()
		}
		select {
		case <-p.stop:
			return
		case <-ended:
			p.mu.Lock()
			if t := p.tunnel.Swap(nil); t != nil {
				p.node.log.Warn("the tunnel was taken away; it is made again", "interface", t.device.Name())
				p.fault = t.close()
			}
		case <-p.routes:
			p.mu.Lock()
			p.keepLocked()
		case <-tick.C:
			p.mu.Lock()
		}
		if !p.closed {
			p.restoreLocked()
		}
		p.mu.Unlock()
	}
}

// restoreLocked makes the tunnel if one is wanted and missing, and gives it every peer that it does not have.
func (p *peers) restoreLocked() {
	if p.unread != nil {
		if p.readLocked(); p.unread != nil {
			return
		}
		if err := p.node.tellRanges(); err != nil {
			p.node.log.Error("cannot tell the ranges of peers", "err", err)
		}
	}
	if len(p.byName) == 0 && !p.node.config.Settings.Overlay.On {
		return
	}
	if p.tunnel.Load() == nil {
		before := p.fault
		if p.fault = p.openLocked(); p.fault != nil {
			if before == nil || before.Error() != p.fault.Error() {
				p.node.log.Error("no tunnel to other nodes", "err", p.fault)
			}
			return
		}
		for name := range p.byName {
			p.waits[name] = nil
		}
	}
	for name := range p.waits {
		if err := p.setLocked(p.byName[name]); err != nil {
			if p.waits[name] == nil {
				p.node.log.Error("cannot reach a peer", "peer", name, "err", err)
			}
			p.waits[name] = err
			continue
		}
		delete(p.waits, name)
	}
}

// openLocked makes the tunnel. Conversations that went through the one before go on.
func (p *peers) openLocked() error {
	t, err := p.node.openTunnel()
	if err != nil {
		return err
	}
	p.node.book.view(func(_ ruleState, program *rule.Program) { err = t.adopt(program) })
	if err == nil {
		err = p.saveLocked()
	}
	if err != nil {
		return errors.Join(err, t.close())
	}
	p.tunnel.Store(t)
	return nil
}

// setLocked puts a peer into the device. While the agent is away, the peer's pods are unreachable rather than reached without encryption.
func (p *peers) setLocked(peer overlay.Peer) error {
	if err := p.tunnel.Load().device.SetPeer(peer); err != nil {
		return err
	}
	if err := stopGaps(peer.Pods, !peer.Plain); err != nil {
		return err
	}
	if peer.Plain {
		return keepPlain(peer.Pods)
	}
	return nil
}

// rerouted tells that the device has changed routes. It waits for nobody.
func (p *peers) rerouted() {
	select {
	case p.routes <- struct{}{}:
	default:
	}
}

// keepLocked keeps the routes to pods without encryption as the device has them now.
func (p *peers) keepLocked() {
	for name, peer := range p.byName {
		if !peer.Plain || p.tunnel.Load() == nil {
			continue
		}
		if err := keepPlain(peer.Pods); err != nil {
			p.node.log.Error("cannot keep the routes to a peer", "peer", name, "err", err)
		}
	}
}

func (p *peers) saveLocked() error {
	r := peersRecord{Interface: p.node.config.Settings.Overlay.Name}
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		r.Peers = append(r.Peers, recordOf(p.byName[name]))
	}
	return r.write(p.node.config.Paths.Peers())
}

// add adds a peer or changes the one of that name.
func (p *peers) add(r api.AddPeer) (api.Done, error) {
	peer, err := peerOf(r)
	if err != nil {
		return api.Done{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unread != nil {
		return api.Done{}, fmt.Errorf("nothing was changed: %w", p.unread)
	}
	if err := p.checkLocked(peer); err != nil {
		return api.Done{}, err
	}
	if p.tunnel.Load() == nil {
		if err := p.openLocked(); err != nil {
			p.fault = err
			return api.Done{}, err
		}
		p.fault = nil
	}
	old, known := p.byName[peer.Name]
	if err := p.replaceLocked(peer, old, known); err != nil {
		return api.Done{}, err
	}
	p.node.log.Info("peer", "name", peer.Name, "endpoints", peer.Endpoints, "pods", peer.Pods, "encrypted", !peer.Plain)
	return api.Done{Version: api.Version, Message: p.node.advice(peer)}, nil
}

// replaceLocked puts a peer in force and records it, or leaves everything as it was.
func (p *peers) replaceLocked(peer, old overlay.Peer, known bool) error {
	var err error
	if known && old.Key != peer.Key {
		err = p.dropLocked(old)
	}
	if err == nil {
		err = p.setLocked(peer)
	}
	if err == nil {
		p.byName[peer.Name] = peer
		p.rangesLocked()
		if err = p.node.tellRanges(); err == nil {
			err = p.saveLocked()
		}
	}
	if err == nil {
		delete(p.waits, peer.Name)
		return nil
	}
	delete(p.byName, peer.Name)
	undo := p.dropLocked(peer)
	if known {
		p.byName[old.Name] = old
		undo = errors.Join(undo, p.setLocked(old))
	}
	p.rangesLocked()
	return errors.Join(err, undo, p.node.tellRanges())
}

// dropLocked takes a peer out of the device, if it is there, with its routes.
func (p *peers) dropLocked(peer overlay.Peer) error {
	d := p.tunnel.Load().device
	list, err := d.Peers()
	if err == nil && slices.ContainsFunc(list, func(s overlay.PeerStatus) bool { return s.Key == peer.Key }) {
		err = d.RemovePeer(peer.Key)
	}
	err = errors.Join(err, stopGaps(peer.Pods, false))
	if peer.Plain {
		err = errors.Join(err, removePlain(peer.Pods))
	}
	return err
}

// tellRanges tells the engine that the pod ranges of peers have changed.
func (n *Node) tellRanges() error {
	if n.pods.Load() == nil {
		return nil
	}
	return n.tellMasquerade()
}

// checkLocked refuses what would collide with this node or other peers.
func (p *peers) checkLocked(peer overlay.Peer) error {
	for _, own := range p.node.config.Settings.Pods.Ranges {
		if slices.ContainsFunc(peer.Pods, own.Overlaps) {
			return fmt.Errorf("peer %s: its pods overlap %s, the range of this node's own", peer.Name, own)
		}
	}
	for _, other := range p.byName {
		if other.Name != peer.Name && other.Key == peer.Key {
			return fmt.Errorf("peer %s: the key is that of peer %s", peer.Name, other.Name)
		}
	}
	return nil
}

func (p *peers) remove(r api.RemovePeer) (api.Done, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unread != nil {
		return api.Done{}, fmt.Errorf("nothing was changed: %w", p.unread)
	}
	old, known := p.byName[r.Name]
	if !known {
		return api.Done{}, fmt.Errorf("no such peer: %s", r.Name)
	}
	if p.tunnel.Load() != nil {
		if err := p.dropLocked(old); err != nil {
			return api.Done{}, err
		}
	}
	delete(p.byName, r.Name)
	delete(p.waits, r.Name)
	p.rangesLocked()
	p.node.log.Info("peer removed", "name", r.Name)
	return api.Done{Version: api.Version}, errors.Join(p.saveLocked(), p.node.tellRanges())
}

// close takes the tunnel away. Peers are recorded: the next agent brings them back.
func (p *peers) close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	close(p.stop)
	p.done.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tunnel.Swap(nil)
	if t == nil {
		return nil
	}
	return t.close()
}
