package overlay

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// KernelDevice is an interface of the kernel's WireGuard. It outlives the process that made it,
// with its peers and their sessions: until it is deleted, the next NewKernel takes it over. Its
// methods may be called from any goroutine.
type KernelDevice struct {
	peerSet
	wg      *nl.WireGuard
	began   time.Time
	endOnce sync.Once
	limit   logLimiter
	gone    chan struct{} // closed when the interface is gone, and by Close

	// guarded by mu
	mtu   int
	paths map[Key]*kernelPath
	moved uint64 // by peers that are removed
}

var _ wire = (*KernelDevice)(nil)

// ErrNoKernel means that the kernel cannot make an interface of its own WireGuard.
var ErrNoKernel = errors.New("overlay: cannot make an interface of the kernel's WireGuard")

// NewKernel makes the interface, or takes over the one of the same name and Config.Owner. It does
// not switch it on: Up does. Of the peers that it has, those in known stay, and SetPeer brings each
// up to date. Of the others, and of routes to ranges that none of known has, nothing stays. What
// Config has for packets and wg(8) (Filter, NoPeer, UAPI, NoOffload) is the kernel's own business.
func NewKernel(config Config, known []Peer) (*KernelDevice, error) {
	d := &KernelDevice{began: time.Now(), gone: make(chan struct{}), paths: map[Key]*kernelPath{}}
	if err := d.begin(config, d); err != nil {
		return nil, err
	}
	if config.Owner == "" {
		return nil, errors.New("overlay: an interface of the kernel needs an owner")
	}
	if err := d.open(known); err != nil {
		return nil, errors.Join(err, d.Delete())
	}
	return d, nil
}

func (d *KernelDevice) open(known []Peer) (err error) {
	if err := d.connect(); err != nil {
		return err
	}
	there, err := d.makeLink()
	if err != nil {
		return err
	}
	if d.wg, err = nl.OpenWireGuard(d.ns, requestTime); err != nil {
		return fmt.Errorf("%w: %w", ErrNoKernel, err)
	}
	before, err := d.wg.Device(there.Index)
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	if none := [32]byte{}; there.Alias != kernelAlias(d.config.Owner) && before.Private != none {
		return fmt.Errorf("interface %s: %w", there.Name, ErrNameTaken)
	}
	d.link = there
	if err := errors.Join(d.nl.SetLinkAlias(there.Index, kernelAlias(d.config.Owner)),
		d.setMTU(there.MTU)); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	return d.keep(known, before.Peers)
}

// makeLink returns the interface, which is made if there is none of the name.
func (d *KernelDevice) makeLink() (nl.Link, error) {
	l, err := d.nl.LinkByName(d.config.Name)
	switch {
	case err == nil && l.Kind == nl.WireGuardKind &&
		(l.Alias == kernelAlias(d.config.Owner) || l.Alias == ""):
		return l, nil
	case err == nil:
		return l, fmt.Errorf("interface %s: %w", d.config.Name, ErrNameTaken)
	case !errors.Is(err, nl.ErrNoLink):
		return l, fmt.Errorf("overlay: %w", err)
	}
	if err := d.nl.AddWireGuard(d.config.Name, d.config.MTU); err != nil {
		return l, fmt.Errorf("%w: %w", ErrNoKernel, err)
	}
	if l, err = d.nl.LinkByName(d.config.Name); err != nil {
		return l, fmt.Errorf("overlay: %w", err)
	}
	d.link = l // from here on Delete deletes it
	return l, nil
}

// setMTU gives the interface the MTU of the settings. One that chooses keeps what it has chosen.
func (d *KernelDevice) setMTU(has int) error {
	if d.mtu = d.config.MTU; has == d.mtu {
		return nil
	}
	if d.autoMTU && has >= MinMTU && has < d.mtu {
		d.mtu = has
		return nil
	}
	return d.nl.SetLinkMTU(d.link.Index, d.mtu)
}

// keep gives the interface its key and port, and takes away what an earlier owner left.
func (d *KernelDevice) keep(known []Peer, has []nl.WireGuardPeer) error {
	var goes []nl.WireGuardChange
	for _, p := range has {
		if !slices.ContainsFunc(known, func(k Peer) bool {
			return k.Key == p.Key && !k.Unencrypted
		}) {
			goes = append(goes, nl.WireGuardChange{Key: p.Key, Remove: true})
		}
	}
	if err := d.wg.SetPeers(d.link.Index, goes...); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	if err := d.wg.Set(d.link.Index, nl.WireGuardSettings{Private: d.config.Key,
		Port: d.config.Port, Mark: d.config.Mark}); err != nil {
		return fmt.Errorf("overlay: port %d: %w", d.config.Port, err)
	}
	all, err := d.nl.Routes(0)
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	for _, r := range all {
		if r.Link != d.link.Index || r.Proto == unix.RTPROT_KERNEL ||
			slices.ContainsFunc(known, func(k Peer) bool {
				return !k.Unencrypted && slices.Contains(k.Pods, r.Dst)
			}) {
			continue
		}
		if err := d.nl.DeleteRoute(r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("overlay: %w", err)
		}
	}
	return nil
}

// Up gives the interface these addresses and no others, switches it on and follows the peers. The
// hooks that evaluate its packets must be attached before.
func (d *KernelDevice) Up(addrs []netip.Prefix) error {
	if err := d.nl.SetLinkUp(d.link.Index); err != nil {
		return fmt.Errorf("overlay: port %d: %w", d.config.Port, err)
	}
	has, err := d.nl.Addrs(d.link.Index)
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	for _, a := range has {
		if slices.Contains(addrs, a.Prefix) || a.Prefix.Addr().IsLinkLocalUnicast() {
			continue
		}
		if err := d.nl.DeleteAddr(d.link.Index, a.Prefix); err != nil {
			return fmt.Errorf("overlay: %w", err)
		}
	}
	for _, a := range addrs {
		if slices.ContainsFunc(has, func(h nl.Addr) bool { return h.Prefix == a }) {
			continue
		}
		if err := d.nl.AddAddr(d.link.Index, a); err != nil {
			return fmt.Errorf("overlay.addresses: %w", err)
		}
	}
	d.done.Go(d.watch)
	return nil
}

// Name is the interface's name.
func (d *KernelDevice) Name() string { return d.config.Name }

// Port is the UDP port that peers send to.
func (d *KernelDevice) Port() uint16 {
	if d.config.Port != 0 {
		return d.config.Port
	}
	now, err := d.wg.Device(d.link.Index)
	if err != nil {
		return 0 // it is gone
	}
	return now.Port
}

// Done is closed when the Device has ended, by Close or because its interface was removed.
func (d *KernelDevice) Done() <-chan struct{} { return d.gone }

func (d *KernelDevice) ended() { d.endOnce.Do(func() { close(d.gone) }) }

// Close stops following the peers. The interface stays, and continues to carry packets.
func (d *KernelDevice) Close() error {
	if !d.stop() {
		return nil
	}
	d.ended()
	err := d.deletePlainRoutes()
	if d.wg != nil {
		d.wg.Close()
	}
	return errors.Join(err, d.disconnect())
}

// Delete removes the interface, and with it its routes and addresses, and closes the Device.
func (d *KernelDevice) Delete() error {
	var err error
	if d.link.Index != 0 {
		d.mu.Lock()
		if !d.closed {
			if err = d.nl.DeleteLink(d.link.Index); errors.Is(err, nl.ErrNoLink) {
				err = nil
			}
		}
		d.mu.Unlock()
	}
	return errors.Join(err, d.Close())
}

const aliasPrefix = "weir tunnel "

// kernelAlias is the alias of the interfaces of an owner.
func kernelAlias(owner string) string { return aliasPrefix + owner }

// IsKernelLink reports whether a link is an interface that NewKernel made.
func IsKernelLink(l nl.Link) bool {
	return l.Kind == nl.WireGuardKind && strings.HasPrefix(l.Alias, aliasPrefix)
}

// DeleteKernelLinks deletes the interfaces of the kernel's WireGuard that an owner has left in the
// network namespace of conn, but for the one of a name.
func DeleteKernelLinks(conn *nl.Conn, owner, but string) error {
	all, err := conn.Links()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range all {
		if l.Kind != nl.WireGuardKind || l.Alias != kernelAlias(owner) || l.Name == but {
			continue
		}
		if err := conn.DeleteLink(l.Index); !errors.Is(err, nl.ErrNoLink) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
