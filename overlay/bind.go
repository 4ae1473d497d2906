package overlay

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tailscale/wireguard-go/conn"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/overlay/internal/device"
	"github.com/weirnet/weir/udp"
)

// batchSize is how many packets go through the device at once: two received GRO packets of up to
// 128 datagrams.
const batchSize = 256

// socketBuffer is the size of the kernel's buffers of a socket.
const socketBuffer = 7 << 20

// bind is WireGuard's socket: a conn.Bind of two udp.Conns, one for each IP version.
type bind struct {
	log     *slog.Logger
	offload bool
	ns      *nl.NS    // where sockets are opened, whatever thread calls
	private Key       // of this node
	onMove  func(Key) // called when a packet of a peer came on another path
	// called when the first packet of a session that the peer began has come; must not block
	onSession func(Key)
	// what opens transport messages, and where what was in them goes; nil: the library does
	wg      *device.Device
	write   func(packets [][]byte, offset int) (int, error)
	helpers *helpers

	mu     sync.RWMutex
	mark   uint32
	v4, v6 *udp.Conn
	icmp6  *os.File // for sendTooBig; nil until it is needed
	peers  map[Key]*peerEndpoint
	// stands for all hosts but peers, so that what is sent to them has a socket of its own
	strangers peerEndpoint
	known     addrsOfPeers
	remotes   remotes
	batches   pool[batch]
	logLimit  logLimiter

	begin      time.Time
	sendErrors atomic.Uint64
	sendFull   atomic.Uint64
	readErrors atomic.Uint64
	spoofed    atomic.Uint64 // see Stats
	// Handshakes, see Stats.
	begun, answered, byOther, accepted, handshakesFull atomic.Uint64

	waits      waitCounts
	handshakes handshakes
}

func newBind(log *slog.Logger, ns *nl.NS, mark uint32, offload bool) *bind {
	return &bind{log: log, ns: ns, mark: mark, offload: offload, begin: time.Now(),
		peers: map[Key]*peerEndpoint{}, handshakes: newHandshakes(),
		batches: pool[batch]{newItem: newBatch}}
}

// now is the bind's clock: ns since it was made, never 0.
func (b *bind) now() int64 { return int64(time.Since(b.begin)) + int64(time.Hour) }

// Open implements conn.Bind.
func (b *bind) Open(port uint16) (fns []conn.ReceiveFunc, actual uint16, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	err = b.ns.Do(func() error {
		fns, actual, err = b.openLocked(port)
		return err
	})
	return fns, actual, err
}

func (b *bind) openLocked(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	if b.v4 != nil || b.v6 != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	config := udp.Config{ReadBuffer: socketBuffer, WriteBuffer: socketBuffer, PacketInfo: true,
		Mark: b.mark,
		GRO:  b.offload, NoGSO: !b.offload}
	// With port 0 the port that is free for IPv4 may be taken for IPv6: try again.
	for range 10 {
		v4, err := udp.Listen("udp4", netip.AddrPortFrom(netip.IPv4Unspecified(), port), config)
		if err != nil && !errors.Is(err, syscall.EAFNOSUPPORT) {
			return nil, 0, err
		}
		got := port
		if v4 != nil {
			got = v4.LocalAddrPort().Port()
		}
		v6, err := udp.Listen("udp6", netip.AddrPortFrom(netip.IPv6Unspecified(), got), config)
		if err != nil && !errors.Is(err, syscall.EAFNOSUPPORT) &&
			!errors.Is(err, syscall.EADDRNOTAVAIL) {
			if v4 != nil {
				v4.Close()
			}
			if port == 0 && errors.Is(err, syscall.EADDRINUSE) {
				continue
			}
			return nil, 0, err
		}
		var fns []conn.ReceiveFunc
		if v4 != nil {
			allowFragments(v4)
			fns = append(fns, b.receiver(v4))
			b.v4 = v4
		}
		if v6 != nil {
			if v4 == nil {
				got = v6.LocalAddrPort().Port()
			}
			fns = append(fns, b.receiver(v6))
			b.v6 = v6
		}
		if len(fns) == 0 {
			return nil, 0, fmt.Errorf("overlay: this host has neither IPv4 nor IPv6: %w",
				syscall.EAFNOSUPPORT)
		}
		return fns, got, nil
	}
	return nil, 0, fmt.Errorf("overlay: no port is free for both IP versions: %w",
		syscall.EADDRINUSE)
}

// allowFragments clears the DF bit: a path that cannot carry our datagrams whole fragments them.
// With the bit, a router that sends no ICMP would drop all large packets and pass small ones. The
// kernel's WireGuard does the same.
func allowFragments(c *udp.Conn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER,
			unix.IP_PMTUDISC_DONT)
	})
}

// Close implements conn.Bind.
func (b *bind) Close() error {
	b.mu.Lock()
	v4, v6, icmp6 := b.v4, b.v6, b.icmp6
	b.v4, b.v6, b.icmp6 = nil, nil, nil
	for _, p := range b.peers {
		b.closeSenders(p)
	}
	b.closeSenders(&b.strangers)
	b.mu.Unlock()
	var err error
	if icmp6 != nil {
		err = icmp6.Close()
	}
	for _, c := range []*udp.Conn{v4, v6} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

// SetMark implements conn.Bind.
func (b *bind) SetMark(mark uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mark = mark
	var err error
	for _, c := range append(b.conns(), b.senders()...) {
		raw, e := c.SyscallConn()
		if e != nil {
			return e
		}
		if e := raw.Control(func(fd uintptr) {
			if e := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK,
				int(mark)); e != nil {
				err = fmt.Errorf("overlay: SO_MARK: %w", e)
			}
		}); e != nil {
			return e
		}
	}
	return err
}

// BatchSize implements conn.Bind.
func (b *bind) BatchSize() int { return batchSize }

// ParseEndpoint implements conn.Bind. Beside addresses it takes "KEY@" and "KEY@ADDRESS", with the
// key in hex: the peer itself, at whatever address, with ADDRESS as its only candidate.
func (b *bind) ParseEndpoint(s string) (conn.Endpoint, error) {
	text, addr, ok := strings.Cut(s, "@")
	if !ok {
		ap, err := netip.ParseAddrPort(s)
		if err != nil {
			return nil, fmt.Errorf("overlay: endpoint: %w", err)
		}
		return &remoteEndpoint{path: path{addr: ap}, bind: b}, nil
	}
	key, err := parseHexKey(text)
	if err != nil {
		return nil, err
	}
	p := b.addPeer(key)
	if addr != "" {
		ap, err := netip.ParseAddrPort(addr)
		if err != nil {
			return nil, fmt.Errorf("overlay: endpoint: %w", err)
		}
		p.setCandidates([]netip.AddrPort{ap})
		p.current.Store(&path{addr: ap})
	}
	return p, nil
}

// addPeer returns the endpoint of a peer, and makes one if there is none.
func (b *bind) addPeer(key Key) *peerEndpoint {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[key]
	if p == nil {
		p = &peerEndpoint{bind: b, key: key}
		p.waiting.all = &b.waits
		b.peers[key] = p
	}
	return p
}

// peerOf returns the endpoint of a peer, or nil.
func (b *bind) peerOf(key Key) *peerEndpoint {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.peers[key]
}

// allPeers returns the endpoints of all peers.
func (b *bind) allPeers() []*peerEndpoint {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Collect(maps.Values(b.peers))
}

// dropPeer removes a peer.
func (b *bind) dropPeer(key Key) {
	b.mu.Lock()
	p := b.peers[key]
	if p != nil {
		delete(b.peers, key)
		b.closeSenders(p)
	}
	b.mu.Unlock()
	if p != nil {
		p.waiting.end() // waits for what sends, which needs mu
	}
}

// moved is called when a packet of a peer came from another address.
func (b *bind) moved(p *peerEndpoint, from, to netip.AddrPort) {
	// an attacker that relays its packets from two addresses could fill the log
	if more, ok := b.logLimit.may(kind{"moved", p.key}, b.now()); ok {
		b.log.Info("peer moved", "peer", p.key.String(), "from", from.String(), "to", to.String(),
			"not_logged_before", more)
	}
	if b.onMove != nil {
		b.onMove(p.key)
	}
}

// connFor returns the socket for an address.
func (b *bind) connFor(a netip.Addr) *udp.Conn {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if familyOf(a) == 0 {
		return b.v4
	}
	return b.v6
}

// conns returns the open sockets. The caller holds mu.
func (b *bind) conns() (list []*udp.Conn) {
	for _, c := range []*udp.Conn{b.v4, b.v6} {
		if c != nil {
			list = append(list, c)
		}
	}
	return list
}
