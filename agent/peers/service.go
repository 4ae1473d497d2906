// Package peers connects a node with others: the record of these, the tunnel to them, and the
// routes that keep packets for their pods from leaving in the clear.
package peers

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/overlay"
)

// Engine is what the part needs of the engines.
type Engine interface {
	// KernelStates are those of the kernel engine alone.
	KernelStates() iter.Seq2[firewall.State, error]
	DeleteStates(drop func(firewall.State) bool) (int, error)
	// DropTunnel takes the engine of the tunnel out, if it is this one.
	DropTunnel(*soft.Engine)
}

// Links knows the host's interfaces and addresses.
type Links interface {
	// Name returns the name of an interface, "" if it is not known.
	Name(index uint32) string
	// IsMe reports whether the host takes the packets to an address.
	IsMe(netip.Addr) bool
}

// Files are the files of the part.
type Files struct {
	Record string // the other nodes
	Key    string // this node's private key
	// Timestamps has how far the handshakes of that key have come.
	Timestamps string
	UAPI       string // the directory in which wg(8) looks for sockets of interfaces
}

// Config is what a Service needs.
type Config struct {
	Settings Settings
	Options  firewall.Options // of the tunnel's engine
	Ranges   []netip.Prefix   // of this node's pods
	Files    Files
	Log      *slog.Logger

	Engine Engine
	Links  Links
	// Guards reports whether an interface is guarded.
	Guards func(name string) bool
	// Join gives a new engine all that the kernel engine got, and adds it to the engines.
	Join func(*soft.Engine) error
	// AddTunnel makes the interface of the tunnel known to the rules.
	AddTunnel func(nl.Link) error
	// Worker wraps the worker of the tunnel's engine, and OnEvent gets the engine's events.
	Worker  func(overlay.Worker) overlay.Worker
	OnEvent func(*firewall.Event)
	// Program shows the Program in force.
	Program func(func(*program.Program))
	// Why explains what happens to a packet.
	Why func(api.Why) (api.Explanation, error)
	// RangesChanged passes the pod ranges of the peers to the engine.
	RangesChanged func() error
	// CheckPort refuses a UDP port of the tunnel that a pod has.
	CheckPort func(port uint16) error
	// CheckRange refuses a range or an endpoint of another node in which this one has an address of
	// a service.
	CheckRange func(netip.Prefix) error
	// IsPod reports whether an address is in a pod range of this node.
	IsPod func(netip.Addr) bool
}

// Service holds the other nodes that this one knows, and the tunnel to them, which is made for the
// first of them.
type Service struct {
	config Config
	tunnel atomic.Pointer[tunnel]
	ranges atomic.Pointer[[]netip.Prefix] // pods of all peers
	// the interface of the tunnel's name is ours, and the tunnel's engine evaluates its packets
	ownsName atomic.Bool
	shown    atomic.Pointer[api.Tunnel]
	set      atomic.Uint64 // peers that were put into the device, or refused by it

	file sync.Mutex // its place in the lock order: agent/doc.go; the file of the record

	mu       sync.Mutex          // its place in the lock order: agent/doc.go
	recorded                     // guarded by mu; as recorded, or soon
	saving   saving              // guarded by mu, but for the channel
	unread   error               // guarded by mu; why the record is not known
	leak     error               // guarded by mu; why packets for peers may leave in the clear
	astray   error               // guarded by mu; why routes to peers cannot be set again
	waits    map[string]error    // guarded by mu; why a peer cannot be reached yet
	silent   map[string]*silence // guarded by mu; by the peer's name
	fault    error               // guarded by mu; why there is no tunnel although there should be
	patient  backoff             // guarded by mu; of making the tunnel
	closed   bool                // guarded by mu
	cutting  bool                // guarded by mu; cutLocked runs
	cutDone  *sync.Cond          // of mu: cutting has become false
	// guarded by mu, but for the channel
	timestamps timestamps
	begun      bool // guarded by mu
	stop       chan struct{}
	done       sync.WaitGroup
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

// closedBesides returns what is closed here and not in another record, which differs in one peer,
// by its name, and in what is held. It makes no lists of all peers: that one changes must cost
// little where a cluster has thousands.
func (k recorded) closedBesides(other recorded, name string) (rest []netip.Prefix) {
	var all []netip.Prefix
	if p := k.byName[name]; !p.Unencrypted {
		all = append(all, p.Pods...)
	}
	for name, held := range k.held {
		if !slices.Equal(held, other.held[name]) {
			all = append(all, held...)
		}
	}
	for _, r := range all {
		if !slices.Contains(rest, r) && !other.closes(r) {
			rest = append(rest, r)
		}
	}
	return rest
}

// closes reports whether a range is among those of closedRanges.
func (k recorded) closes(r netip.Prefix) bool {
	for _, p := range k.byName {
		if !p.Unencrypted && slices.Contains(p.Pods, r) {
			return true
		}
	}
	for _, held := range k.held {
		if slices.Contains(held, r) {
			return true
		}
	}
	return false
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

// New returns a Service that knows no peers yet.
func New(c Config) *Service {
	p := &Service{config: c, recorded: recorded{byName: map[string]overlay.Peer{},
		held: map[string][]netip.Prefix{}}, waits: map[string]error{},
		silent: map[string]*silence{},
		stop:   make(chan struct{}), saving: saving{unsavedC: make(chan struct{}, 1)},
		timestamps: timestamps{opened: make(chan struct{}, 1)}}
	p.cutDone = sync.NewCond(&p.mu)
	p.ranges.Store(&[]netip.Prefix{})
	return p
}

// Load reads the record of peers and closes their ranges, before anything else may fail. It needs
// no other part. The status shows a failure, and Begin starts the retries.
func (p *Service) Load() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readLocked()
}

// Ping takes the lock, for the watchdog.
func (p *Service) Ping() {
	p.mu.Lock()
	p.mu.Unlock() //lint:ignore SA2001 that it can be had is all that matters
}

// PeersProcessed counts the peers that were put into the tunnel's device, or refused by it.
func (p *Service) PeersProcessed() uint64 { return p.set.Load() }

// Ranges returns the ranges of the pods of all peers.
func (p *Service) Ranges() []netip.Prefix { return *p.ranges.Load() }

// readLocked reads the record. A damaged one is set aside; the ranges that can still be read in it
// stay closed.
func (p *Service) readLocked() {
	file := p.config.Files.Record
	r, err := readRecord(file)
	p.saving.filed = r.Interface
	p.saving.changes++
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
		p.config.Log.Error("cannot use the record of peers", "err", err)
	}
	if errors.Is(err, errDamaged) {
		if _, bad := atomicfile.MoveAside(file, "damaged"); bad != nil {
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
func (p *Service) closeLocked() {
	err := addBlackholes(p.closedRanges())
	if err != nil && p.leak == nil {
		p.config.Log.Error("packets for peers may leave unencrypted", "err", err)
	}
	p.leak = err
}

// rangesLocked publishes the pod ranges of all peers for readers without the lock.
func (p *Service) rangesLocked() {
	var all []netip.Prefix
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		all = append(all, p.byName[name].Pods...)
	}
	p.ranges.Store(&all)
}

// has reports whether an address is in the pod ranges of a peer.
func (p *Service) has(a netip.Addr) bool {
	return slices.ContainsFunc(p.Ranges(), func(r netip.Prefix) bool { return r.Contains(a) })
}

// openLocked makes the tunnel. Flows of the previous tunnel continue. The record has to name the
// interface, for down; soon, if the disk is not to be waited for.
func (p *Service) openLocked(soon bool) error {
	p.continueHandshakesLocked()
	t, err := p.openTunnel()
	if err != nil {
		return err
	}
	if t.engine != nil {
		p.config.Program(func(program *program.Program) { err = t.adopt(program) })
	}
	if err == nil && p.unread == nil && p.saving.filed != p.config.Settings.Name {
		if p.saveSoonLocked(); !soon { // both: an older record may be on its way to the file
			err = p.saveLocked(p.recorded)
		}
	}
	if err != nil {
		return errors.Join(err, t.close())
	}
	p.tunnel.Store(t)
	select {
	case p.timestamps.opened <- struct{}{}:
	default: // it will be written anyway
	}
	return nil
}

// setLocked puts a recorded peer into the device.
func (p *Service) setLocked(peer overlay.Peer) error {
	defer p.set.Add(1)
	if err := p.tunnel.Load().device.SetPeer(peer); err != nil || !peer.Unencrypted {
		return err
	}
	return keepPlain(peer.Pods)
}

// record makes the file's content.
func (p *Service) record(k recorded) recordFile {
	r := recordFile{Interface: p.config.Settings.Name}
	for _, name := range slices.Sorted(maps.Keys(k.byName)) {
		r.Peers = append(r.Peers, recordOf(k.byName[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(k.held)) {
		r.Held = append(r.Held, heldRecord{Name: name, Pods: k.held[name]})
	}
	return r
}

// saveLocked writes the file now.
func (p *Service) saveLocked(k recorded) error {
	r := p.record(k)
	err := r.write(p.config.Files.Record)
	if err == nil {
		p.saving.filed = r.Interface
	}
	return err
}

// Close removes the tunnel, unless it is the kernel's, which stays for the next agent. Peers stay
// in the record: the next agent restores them, and until then their ranges are unreachable.
func (p *Service) Close() error {
	p.mu.Lock()
	p.awaitCutLocked()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	close(p.stop)
	p.done.Wait()
	err := p.saveUnsaved()
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tunnel.Swap(nil)
	if t == nil {
		return err
	}
	return errors.Join(err, t.leave())
}

// errUnread is the answer to a change while the record of peers is not known: it would be
// overwritten.
func errUnread(err error) error {
	return fmt.Errorf("the record of peers cannot be used, so that nothing can be changed: %w", err)
}
