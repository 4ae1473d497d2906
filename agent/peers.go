package agent

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/overlay"
	"github.com/weirnet/weir/rule"
)

// peers are the other nodes that this one knows, and the tunnel to them, which is made for the
// first of them.
type peers struct {
	node   *Node
	tunnel atomic.Pointer[tunnel]
	ranges atomic.Pointer[[]netip.Prefix] // pods of all peers
	// the interface of the tunnel's name is ours, and the tunnel's engine evaluates its packets
	ownsName atomic.Bool
	set      atomic.Uint64 // peers that were put into the device, or refused by it

	mu       sync.Mutex       // its place in the lock order: doc.go
	recorded                  // guarded by mu; as recorded
	unread   error            // guarded by mu; why the record is not known
	leak     error            // guarded by mu; why packets for peers may leave in the clear
	astray   error            // guarded by mu; why routes to peers cannot be set again
	waits    map[string]error // guarded by mu; why a peer cannot be reached yet
	fault    error            // guarded by mu; why there is no tunnel although there should be
	patient  backoff          // guarded by mu; of making the tunnel
	closed   bool             // guarded by mu
	begun    bool             // guarded by mu
	stop     chan struct{}
	done     sync.WaitGroup
}

// recorded is the content of the record.
type recorded struct {
	byName map[string]overlay.Peer
	// ranges that encrypted peers had, by their names: unreachable until they are released
	held map[string][]netip.Prefix
}

// closedRanges are those for which packets must never leave in the clear: they are unreachable when
// there is no tunnel.
func (k recorded) closedRanges() (all []netip.Prefix) {
	for _, name := range slices.Sorted(maps.Keys(k.byName)) {
		if p := k.byName[name]; !p.Unencrypted {
			all = append(all, p.Pods...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.held)) {
		all = append(all, k.held[name]...)
	}
	return all
}

// without returns the ranges of a that are not in b.
func without(a, b []netip.Prefix) (rest []netip.Prefix) {
	for _, r := range a {
		if !slices.Contains(b, r) {
			rest = append(rest, r)
		}
	}
	return rest
}

// newPeers reads the record of peers and closes their ranges, before anything else may fail. It
// needs only the node's configuration. The status shows a failure, and begin starts the retries.
func newPeers(n *Node) *peers {
	p := &peers{node: n, recorded: recorded{byName: map[string]overlay.Peer{},
		held: map[string][]netip.Prefix{}}, waits: map[string]error{},
		stop: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readLocked()
	return p
}

// readLocked reads the record. A damaged one is set aside; the ranges that can still be read in it
// stay closed.
func (p *peers) readLocked() {
	file := p.node.config.Paths.Peers()
	r, err := readPeers(file)
	p.byName, p.held = map[string]overlay.Peer{}, map[string][]netip.Prefix{}
	for _, one := range r.Peers {
		p.byName[one.Name] = one.peer()
	}
	for _, one := range r.Held {
		if len(one.Pods) > 0 {
			p.held[one.Name] = append(p.held[one.Name], one.Pods...)
		}
	}
	if p.unread == nil && err != nil {
		p.node.log.Error("the record of peers", "err", err)
	}
	if errors.Is(err, errDamaged) {
		if _, bad := atomicfile.SetAside(file, "damaged"); bad != nil {
			err = errors.Join(err, bad)
		} else {
			err = p.saveLocked(p.recorded)
		}
	}
	p.unread = err
	p.rangesLocked()
	p.closeLocked()
}

// closeLocked closes the ranges again: other programs delete routes, too.
func (p *peers) closeLocked() {
	err := addBlackholes(p.closedRanges())
	if err != nil && p.leak == nil {
		p.node.log.Error("packets for peers may leave in the clear", "err", err)
	}
	p.leak = err
}

// rangesLocked publishes the pod ranges of all peers for readers without the lock.
func (p *peers) rangesLocked() {
	var all []netip.Prefix
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		all = append(all, p.byName[name].Pods...)
	}
	p.ranges.Store(&all)
}

// has reports whether an address is in the pod ranges of a peer.
func (p *peers) has(a netip.Addr) bool {
	return slices.ContainsFunc(*p.ranges.Load(), func(r netip.Prefix) bool { return r.Contains(a) })
}

const (
	// retryEvery is how often what failed is tried again: a peer whose network is not there yet,
	// routes, the record.
	retryEvery = 5 * time.Second
	// openFirst and openLast are how long after a failure the tunnel is tried again, at first and
	// at last.
	openFirst, openLast = 100 * time.Millisecond, 30 * time.Second
)

// backoff computes when something that fails is tried again: each time later.
type backoff struct {
	pause time.Duration
	at    time.Time
}

func (b *backoff) failed(now time.Time) {
	b.pause = min(max(2*b.pause, openFirst), openLast)
	b.at = now.Add(b.pause)
}

// begin brings the peers of an earlier run back. The status shows a failure, and it is retried. The
// rules have to be in force. It may be called again.
func (p *peers) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun || p.closed {
		return
	}
	p.begun = true
	p.restoreLocked()
	p.done.Go(p.watch)
}

// watch makes the tunnel again when its interface was deleted, and retries what failed.
func (p *peers) watch() {
	p.openUnknown()
	for repaired := time.Now(); ; {
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
				p.node.log.Warn("the tunnel was deleted; it is made again", "interface",
					t.device.Name())
				p.fault = t.close()
			}
		case <-time.After(p.rest(time.Until(repaired.Add(retryEvery)))):
			p.mu.Lock()
			if time.Since(repaired) >= retryEvery {
				repaired = time.Now()
				p.repairLocked()
			}
		}
		if !p.closed {
			p.restoreLocked()
		}
		p.mu.Unlock()
	}
}

// rest is how long there is nothing to do, at most the given time.
func (p *peers) rest(most time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == nil {
		return most
	}
	return min(most, time.Until(p.patient.at))
}

// repairLocked retries what failed, and restores what other programs deleted.
func (p *peers) repairLocked() {
	switch {
	case p.closed:
	case p.unread != nil:
		p.readLocked()
	case p.leak != nil:
		p.closeLocked()
	default:
		p.leak = keepBlackholes(p.closedRanges())
		if p.tunnel.Load() == nil {
			p.astray = nil
		}
		if t := p.tunnel.Load(); t != nil {
			err := t.device.Reroute()
			if err != nil && p.astray == nil {
				p.node.log.Warn("routes to peers", "err", err)
			}
			p.astray = err
		}
	}
}

// openUnknown deletes routes of an agent that died in the middle of a change.
func (p *peers) openUnknown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := os.Stat(p.node.config.Paths.Peers()); err != nil || p.unread != nil || p.closed {
		return // without a record the routes are of another node, if there are any
	}
	closed := p.closedRanges()
	if err := deleteBlackholesOf(func(r netip.Prefix) bool {
		return !slices.Contains(closed, r)
	}); err != nil {
		p.node.log.Warn("routes of an earlier agent stay", "err", err)
	}
}

// restoreLocked makes the tunnel if one is wanted and missing, and gives it every peer that it does
// not have.
func (p *peers) restoreLocked() {
	if len(p.byName) == 0 && !p.node.config.Settings.Overlay.On {
		p.fault = nil
		return
	}
	if p.tunnel.Load() == nil {
		if time.Now().Before(p.patient.at) {
			return
		}
		before := p.fault
		if p.fault = p.openLocked(); p.fault != nil {
			if p.patient.failed(time.Now()); before == nil || before.Error() != p.fault.Error() {
				p.node.log.Error("no tunnel to other nodes", "err", p.fault)
			}
			return
		}
		p.patient = backoff{}
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

// openLocked makes the tunnel. Flows of the previous tunnel continue.
func (p *peers) openLocked() error {
	t, err := p.node.openTunnel()
	if err != nil {
		return err
	}
	p.node.rules.View(func(_ rules.Version, program *rule.Program) { err = t.adopt(program) })
	if err == nil && p.unread == nil {
		err = p.saveLocked(p.recorded) // down needs the name of the interface
	}
	if err != nil {
		return errors.Join(err, t.close())
	}
	p.tunnel.Store(t)
	return nil
}

// setLocked puts a recorded peer into the device.
func (p *peers) setLocked(peer overlay.Peer) error {
	defer p.set.Add(1)
	if err := p.tunnel.Load().device.SetPeer(peer); err != nil || !peer.Unencrypted {
		return err
	}
	return keepPlain(peer.Pods)
}

// record makes the file's content.
func (p *peers) record(k recorded) peersRecord {
	r := peersRecord{Interface: p.node.config.Settings.Overlay.Name}
	for _, name := range slices.Sorted(maps.Keys(k.byName)) {
		r.Peers = append(r.Peers, recordOf(k.byName[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(k.held)) {
		r.Held = append(r.Held, heldRecord{Name: name, Pods: k.held[name]})
	}
	return r
}

func (p *peers) saveLocked(k recorded) error {
	return p.record(k).write(p.node.config.Paths.Peers())
}

// close takes the tunnel away. Peers are recorded: the next agent brings them back, and until then
// their ranges are unreachable.
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

// errUnread is the answer to a change while the record of peers is not known: it would be
// overwritten.
func errUnread(err error) error {
	return fmt.Errorf("the record of peers cannot be used, so that nothing can be changed: %w", err)
}
