package overlay

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
)

// Config describes a Device.
type Config struct {
	Name string // of the interface
	Key  Key    // private key of this node
	Port uint16 // UDP port; 0 lets the system choose
	// MTU of the interface; 0 chooses DefaultMTU, or less where the path to a peer requires it.
	MTU int
	// Mark is the firewall mark of the encrypted packets; 0 is none.
	Mark uint32
	// Filter decides about every packet; nil passes all.
	Filter Filter
	// NoPeer is given each packet that the kernel sent into the tunnel to an address that no peer
	// has, if it is not nil: so that it can answer. It is called for one packet at a time, on the
	// packet path; it must not block, and the packet is valid during the call only.
	NoPeer func(packet []byte)
	// UAPI is the directory for the socket of wg(8), which looks in DefaultUAPI; empty for none.
	UAPI string
	// Resolver looks up the names of peers; nil means eyeballs.DefaultResolver().
	Resolver *dns.Resolver
	// NoOffload switches GSO and GRO off, towards the kernel's stack and on the wire.
	NoOffload bool
	// Owner marks an interface of NewKernel, which outlives the process, as this user's: at most
	// 200 bytes.
	Owner string
	// Log receives peers that move and errors; nil logs nothing.
	Log *slog.Logger
}

const (
	// DefaultMTU fits a path of 1500 bytes: 40 bytes of IPv6, 8 of UDP and 32 of WireGuard are
	// added.
	DefaultMTU = 1420
	// MinMTU is the smallest that IPv6 allows.
	MinMTU = 1280
	// DefaultUAPI is where wg(8) looks for sockets.
	DefaultUAPI = "/var/run/wireguard"
)

// Peer is another node.
type Peer struct {
	Name      string
	Key       Key      // its public key
	Preshared Key      // zero for none
	Endpoints []string // HOST:PORT, in order of preference; none for a node that connects to us
	Pods      []netip.Prefix
	// how often to send something while idle, for the sake of NATs; 0 is never
	Keepalive time.Duration
	// Unencrypted sends packets to the peer's pods as they are, past the tunnel and the Filter: the
	// first endpoint that is a neighbour of this host becomes their router. Both ends must agree.
	// Endpoints must be addresses: a DNS server could redirect the packets of a name.
	Unencrypted bool
}

func (p *Peer) check() error {
	if p.Unencrypted && len(p.Endpoints) == 0 {
		return errNoEndpoint{p.Name}
	}
	if p.Key.IsZero() {
		return fmt.Errorf("overlay: peer %q has no public key", p.Name)
	}
	for _, e := range p.Endpoints {
		if err := checkEndpoint(e); err != nil {
			return fmt.Errorf("overlay: peer %q: %w", p.Name, err)
		}
		host, _, _ := net.SplitHostPort(e)
		if _, err := netip.ParseAddr(host); err != nil && p.Unencrypted {
			return fmt.Errorf("overlay: peer %q: endpoint %q: without encryption it has to be an "+
				"address: a DNS server could redirect the packets of a name",
				p.Name, e)
		}
	}
	for _, r := range p.Pods {
		if r.Addr().Is4In6() || r.Addr().IsLoopback() {
			return fmt.Errorf("overlay: peer %q: pod range %s has addresses that no packet to "+
				"another host has; write the ranges of its containers, like 10.88.2.0/24",
				p.Name, r)
		}
		if !r.IsValid() || r != r.Masked() {
			return fmt.Errorf("overlay: peer %q: pod range %s has host bits set; write %s", p.Name,
				r, r.Masked())
		}
	}
	if p.Keepalive < 0 || p.Keepalive > 65535*time.Second {
		return fmt.Errorf("overlay: peer %q: keepalive %s is not between 0 and 65535 seconds",
			p.Name, p.Keepalive)
	}
	return nil
}

func (c *Config) check() error {
	switch {
	case c.Name == "" || len(c.Name) > 15:
		return fmt.Errorf("overlay: interface name %q must have 1 to 15 characters", c.Name)
	case c.Key.IsZero():
		return errors.New("overlay: no private key")
	case c.MTU != 0 && (c.MTU < MinMTU || c.MTU > 65000):
		return fmt.Errorf("overlay: MTU %d is not between %d and 65000", c.MTU, MinMTU)
	}
	return nil
}

// PeerStatus is a Peer with its state and counters.
type PeerStatus struct {
	Peer
	Path          netip.AddrPort // where packets are sent now; not valid before the first
	LastHandshake time.Time      // zero before the first
	RTT           time.Duration  // of the last handshake that this node began; 0 before the first
	Received      uint64         // bytes, encrypted
	Sent          uint64
	Moves         uint64 // how often Path changed
	// handshakes that this node began, also those of which no message could be sent; the kernel's
	// WireGuard does not count them
	Begun uint64
	// packets to the peer that waited for a session and were dropped: too many waited, or none came
	// in time
	WaitFull, WaitLate uint64
}
