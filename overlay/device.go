package overlay

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirnet/weir/overlay/internal/device"
)

// Device is a WireGuard interface in user space. Its methods may be called from any goroutine.
type Device struct {
	peerSet
	tun  *tunDevice
	bind *bind
	wg   *device.Device
	uapi *uapi

	keepalives chan Key // peers from which a packet came on another path
	sessions   chan Key // peers with a new session
}

// New makes the interface and brings it up. The caller sets addresses; routes to pod ranges come
// with the peers. It is made in the network namespace of the calling thread.
func New(config Config) (*Device, error) {
	d := &Device{keepalives: make(chan Key, 64), sessions: make(chan Key, 64)}
	if err := d.begin(config, d); err != nil {
		return nil, err
	}
	if err := d.open(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Device) open() (err error) {
	if err = d.connect(); err != nil {
		return err
	}
	if d.tun, err = openTUN(d.config.Name, d.config.MTU, !d.config.NoOffload,
		d.config.Filter); err != nil {
		return err
	}
	if d.link, err = d.nl.LinkByName(d.tun.name); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	if err := d.nl.SetLinkMTU(d.link.Index, d.config.MTU); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	d.tun.onLost = d.config.NoPeer // before the interface is read
	d.bind = newBind(d.log, d.ns, d.config.Mark, !d.config.NoOffload)
	d.bind.private = d.config.Key
	// called by the device's own goroutines, so it must not call the device
	d.bind.onMove = func(k Key) {
		select {
		case d.keepalives <- k:
		default:
		}
	}
	d.bind.onSession = func(k Key) {
		select {
		case d.sessions <- k:
		default: // checkWaiting finds it
		}
	}
	d.bind.helpers = newHelpers(d.ctx.Done())
	d.tun.in.sealer.helpers, d.tun.in.sealer.bind = d.bind.helpers, d.bind
	d.wg = device.NewDevice(d.tun, d.bind, d.logger())
	d.wg.SetSessionStateFunc(func(k device.NoisePublicKey, state device.PeerSessionState) {
		if state == device.PeerSessionEstablished {
			d.bind.onSession(Key(k))
		}
	})
	d.bind.wg, d.bind.write = d.wg, d.tun.Write // before the socket is open
	d.tun.in.sealer.wg.Store(d.wg)              // the interface is read already
	if err := d.wg.IpcSet(fmt.Sprintf("private_key=%s\nlisten_port=%d\n", d.config.Key.hex(),
		d.config.Port)); err != nil {
		return fmt.Errorf("overlay: port %d: %w", d.config.Port, err)
	}
	if err := d.wg.Up(); err != nil {
		return fmt.Errorf("overlay: port %d: %w", d.config.Port, err)
	}
	d.tun.loop.port.Store(uint32(d.Port()))
	if err := d.nl.SetLinkUp(d.link.Index); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	if d.config.UAPI != "" {
		if d.uapi, err = listenUAPI(d); err != nil {
			return err
		}
	}
	d.done.Go(d.watch)
	d.done.Go(func() { d.bind.handshakes.run(d.ctx) })
	d.done.Go(d.followAddrs)
	return nil
}

// logger logs the library's errors as warnings. They contain no text from the network. The library
// reports one for each packet, so they are limited by kind.
func (d *Device) logger() *device.Logger {
	return &device.Logger{
		Verbosef: device.DiscardLogf,
		Errorf: func(format string, args ...any) {
			if more, ok := d.bind.logLimit.may(kind{what: format}, d.bind.now()); ok {
				d.log.Warn("wireguard", "what", strings.TrimSpace(fmt.Sprintf(format, args...)),
					"not_logged_before", more)
			}
		},
	}
}

// Name is the interface's name.
func (d *Device) Name() string { return d.tun.name }

// Port is the UDP port that peers send to.
func (d *Device) Port() uint16 {
	d.bind.mu.RLock()
	defer d.bind.mu.RUnlock()
	for _, c := range d.bind.conns() {
		return c.LocalAddrPort().Port()
	}
	return 0
}

// Done is closed when the Device has ended, by Close or because its interface was removed.
func (d *Device) Done() <-chan struct{} { return d.wg.Wait() }

// Stats are counters of a Device since it was made.
type Stats struct {
	DroppedIn, DroppedOut uint64 // refused by the Filter
	Broken                uint64 // packets of the kernel that could not be cut, or not whole
	// packets of the kernel whose sender would have had a checksum written where none belongs
	Misplaced uint64
	NoPeer    uint64 // packets of the kernel to an address that no peer has
	// authentic packets of peers from outside their ranges, or that are not of IP
	Spoofed uint64
	// packets of the kernel that waited for a session of their peer, and were dropped: too many
	// waited, or none came in time
	WaitFull, WaitLate uint64
	SendErrors         uint64 // batches for which no path worked
	// datagrams that came faster than the link to their peer, or to another host, carries
	SendFull    uint64
	ReadErrors  uint64
	Loops       uint64 // encrypted packets that were routed into the tunnel again
	SocketDrops uint64 // datagrams that came faster than they were read
	Moves       uint64 // changes of path, of all peers
	// handshakes that this node began, and those of them that a peer answered
	Begun, Answered uint64
	// of Answered: not by the endpoint that was tried first
	AnsweredByOther uint64
	Accepted        uint64 // handshakes of peers that this node answered
	// handshake messages that were dropped because too many waited, of whichever host
	HandshakesFull uint64
}

// Stats returns the counters.
func (d *Device) Stats() Stats {
	s := Stats{
		DroppedIn: d.tun.dropped[0].Load(), DroppedOut: d.tun.dropped[1].Load(),
		Broken: d.tun.broken.Load(), Misplaced: d.tun.misplaced.Load(),
		NoPeer:     d.tun.noPeer.Load(),
		SendErrors: d.bind.sendErrors.Load(), SendFull: d.bind.sendFull.Load(),
		ReadErrors: d.bind.readErrors.Load(), Spoofed: d.bind.spoofed.Load(),
		Loops:    d.tun.loop.seen.Load(),
		WaitFull: d.bind.waits.full.Load(), WaitLate: d.bind.waits.late.Load(),
		Begun: d.bind.begun.Load(), Answered: d.bind.answered.Load(),
		AnsweredByOther: d.bind.byOther.Load(), Accepted: d.bind.accepted.Load(),
		HandshakesFull: d.bind.handshakesFull.Load(),
	}
	for _, p := range d.bind.allPeers() {
		s.Moves += p.moves.Load()
	}
	d.bind.mu.RLock()
	defer d.bind.mu.RUnlock()
	for _, c := range append(d.bind.conns(), d.bind.senders()...) {
		s.SocketDrops += c.Stats().Dropped
	}
	return s
}

// Close removes the interface, and with it its routes and addresses.
func (d *Device) Close() error {
	if !d.stop() {
		return nil
	}
	err := d.deletePlainRoutes()
	if d.uapi != nil {
		err = errors.Join(err, d.uapi.close())
	}
	switch {
	case d.wg != nil:
		d.wg.Close()
	case d.tun != nil:
		err = errors.Join(err, d.tun.Close())
	}
	return errors.Join(err, d.disconnect())
}
