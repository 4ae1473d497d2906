package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/internal/nl"
)

// wire is WireGuard as the peers of an interface need it: ours in user space, or the kernel's. The
// caller holds peerSet.mu.
type wire interface {
	// put adds a peer with the addresses of its endpoints, or changes it.
	put(p *peer, list []netip.AddrPort) error
	// drop removes a peer. After an error WireGuard may still have it.
	drop(Key) error
	// setCandidates replaces the addresses of a peer's endpoints.
	setCandidates(p *peer, list []netip.AddrPort)
	// rangesChanged is called when the peers have other ranges.
	rangesChanged()
	// currentMTU and lowerMTU are about the interface. Nothing happens if it has less already.
	currentMTU() int
	lowerMTU(mtu int) error
}

// peerSet is what both back ends share: the peers of an interface, their names and their routes.
type peerSet struct {
	config  Config
	log     *slog.Logger
	autoMTU bool
	ns      *nl.NS
	nl      *nl.Conn
	link    nl.Link
	wire    wire

	mu     sync.Mutex
	peers  map[Key]*peer
	closed bool
	ctx    context.Context // until Close
	end    context.CancelFunc
	done   sync.WaitGroup
}

// requestTime is how long one request to the kernel may take. A call that changes peers makes some,
// and waits for them.
const requestTime = 10 * time.Second

// begin sets an empty peerSet up. It changes nothing on the host.
func (d *peerSet) begin(config Config, w wire) error {
	if err := config.check(); err != nil {
		return err
	}
	d.autoMTU = config.MTU == 0
	if d.autoMTU {
		config.MTU = DefaultMTU
	}
	if config.Resolver == nil {
		config.Resolver = eyeballs.DefaultResolver()
	}
	d.config, d.wire, d.log, d.peers = config, w, config.Log, map[Key]*peer{}
	d.ctx, d.end = context.WithCancel(context.Background())
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// connect connects to the network namespace of the calling thread.
func (d *peerSet) connect() (err error) {
	if d.ns, err = nl.CurrentNS(); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	if d.nl, err = nl.OpenWithin(d.ns, requestTime); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	return nil
}

// stop closes the set and waits for what runs for it. It reports whether the set was open.
func (d *peerSet) stop() bool {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return false
	}
	d.closed = true
	d.end()
	d.mu.Unlock()
	d.done.Wait()
	return true
}

// disconnect undoes connect.
func (d *peerSet) disconnect() (err error) {
	if d.nl != nil {
		d.nl.Close()
	}
	if d.ns != nil {
		err = d.ns.Close()
	}
	return err
}

// deletePlainRoutes deletes the routes that do not go with the interface.
func (d *peerSet) deletePlainRoutes() (err error) {
	for _, p := range d.peers {
		if p.Unencrypted {
			err = errors.Join(err, d.deleteRoutes(p, nil))
		}
	}
	return err
}

// Index is the interface's number.
func (d *peerSet) Index() int { return d.link.Index }

// PublicKey is this node's public key.
func (d *peerSet) PublicKey() Key { return d.config.Key.Public() }

// refreshNames starts a lookup of the names of all endpoints. It does not wait for them.
func (d *peerSet) refreshNames() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.peers {
		if p.endpoints.named() {
			d.done.Go(func() { d.lookUp(p) })
		}
	}
}
