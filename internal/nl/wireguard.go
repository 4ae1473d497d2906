package nl

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	lib "github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// WireGuardKind is Link.Kind of the kernel's WireGuard interfaces.
const WireGuardKind = "wireguard"

// WireGuardDevice is an interface of type wireguard as it was when it was read.
type WireGuardDevice struct {
	Private [32]byte // zero: none yet
	Port    uint16   // UDP; 0 until the interface is on for the first time, unless one was set
	Mark    uint32   // of the encrypted packets
	Peers   []WireGuardPeer
}

// WireGuardPeer is a peer of such an interface.
type WireGuardPeer struct {
	Key           [32]byte
	Endpoint      netip.AddrPort // where packets go now; not valid before the first address
	LastHandshake time.Time      // zero before the first
	Received      uint64         // bytes, encrypted
	Sent          uint64
	AllowedIPs    []netip.Prefix
}

// WireGuardSettings are set together on an interface.
type WireGuardSettings struct {
	Private [32]byte
	Port    uint16
	Mark    uint32
}

// WireGuardChange is a change of one peer.
type WireGuardChange struct {
	Key    [32]byte
	Remove bool // nothing else counts then
	Only   bool // only if there is such a peer; otherwise one is added
	// nil, not valid or nil leaves what it has
	Preshared *[32]byte // zero for none
	Endpoint  netip.AddrPort
	Keepalive *uint16 // seconds; 0 is never. When it becomes another one than 0, one is sent
	// Replace sets AllowedIPs in the place of those that the peer has. They are taken from the
	// peers that have them.
	Replace    bool
	AllowedIPs []netip.Prefix
}

// WireGuard speaks to the kernel's WireGuard in one network namespace, by generic netlink. It may
// be used by several goroutines at once.
type WireGuard struct {
	socket *lib.SocketHandle
	family uint16
}

// ErrNoWireGuard means that the kernel has no WireGuard.
var ErrNoWireGuard = errors.New("the kernel has no WireGuard")

// AddWireGuard makes an interface of type wireguard, which is down. The kernel loads its module for
// that. The error wraps ErrNoWireGuard if there is none.
func (c *Conn) AddWireGuard(name string, mtu int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	err := change(fmt.Sprintf("make interface %q of type %s", name, WireGuardKind), func() error {
		return c.h.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs})
	}, unix.EEXIST)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", ErrNoWireGuard, err)
	}
	return err
}

// OpenWireGuard connects in ns, or in the namespace of the calling thread when ns is nil. A request
// may take as long as most. The error wraps ErrNoWireGuard when the module is not loaded: making an
// interface loads it.
func OpenWireGuard(ns *NS, most time.Duration) (*WireGuard, error) {
	at := netns.None()
	if ns != nil {
		at = netns.NsHandle(ns.Fd())
	}
	s, err := lib.GetNetlinkSocketAt(at, netns.None(), unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open generic netlink: %w", err)
	}
	w := &WireGuard{socket: &lib.SocketHandle{Socket: s}}
	limit := unix.NsecToTimeval(most.Nanoseconds())
	err = errors.Join(s.SetSendTimeout(&limit), s.SetReceiveTimeout(&limit))
	if err == nil {
		w.family, err = w.findFamily()
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close closes the connection. It must not be used any more.
func (w *WireGuard) Close() { w.socket.Close() }

// findFamily asks for the number of the kernel's WireGuard in generic netlink.
func (w *WireGuard) findFamily() (uint16, error) {
	var name []byte
	name = appendAttr(name, lib.GENL_CTRL_ATTR_FAMILY_NAME, lib.ZeroTerminated(WireGuardKind))
	replies, err := read("look for WireGuard", func() ([][]byte, error) {
		return w.ask(lib.GENL_ID_CTRL, 0, lib.GENL_CTRL_CMD_GETFAMILY, name)
	})
	if errors.Is(err, unix.ENOENT) {
		return 0, fmt.Errorf("%w: %w", ErrNoWireGuard, err)
	}
	if err != nil {
		return 0, err
	}
	for _, reply := range replies {
		for kind, value := range attrs(&reply) {
			if kind == lib.GENL_CTRL_ATTR_FAMILY_ID && len(value) == 2 {
				return native.Uint16(value), nil
			}
		}
	}
	return 0, fmt.Errorf("%w: the kernel names no family", ErrNoWireGuard)
}

// ask sends one request of generic netlink and returns what follows the headers of the answers.
func (w *WireGuard) ask(family uint16, flags int, command uint8, body []byte) ([][]byte, error) {
	r := genericRequest(family, flags, command, body)
	r.Sockets = map[int]*lib.SocketHandle{unix.NETLINK_GENERIC: w.socket}
	replies, err := r.Execute(unix.NETLINK_GENERIC, 0)
	for i, reply := range replies {
		if len(reply) < lib.SizeofGenlmsg {
			return nil, fmt.Errorf("an answer of %d bytes", len(reply))
		}
		replies[i] = reply[lib.SizeofGenlmsg:]
	}
	return replies, err
}

// genericRequest puts the header of generic netlink (struct genlmsghdr) in front of the body. The
// library's Genlmsg has no space for the last two bytes of it, and sends what follows in memory.
// They must be zero: Linux 7.3 checks that for WireGuard (genl_header_check).
func genericRequest(family uint16, flags int, command uint8, body []byte) *lib.NetlinkRequest {
	r := lib.NewNetlinkRequest(int(family), flags)
	r.AddRawData(append([]byte{command, 1, 0, 0}, body...)) // version 1
	return r
}

// Device reads an interface of type wireguard. The error wraps ErrNoLink when it is gone.
func (w *WireGuard) Device(index int) (WireGuardDevice, error) {
	what := fmt.Sprintf("read WireGuard's interface %d", index)
	body := appendAttr(nil, wgDeviceIndex, native.AppendUint32(nil, uint32(index)))
	replies, err := read(what, func() ([][]byte, error) {
		return w.ask(w.family, unix.NLM_F_DUMP, wgGetDevice, body)
	})
	if errors.Is(err, unix.ENODEV) {
		return WireGuardDevice{}, fmt.Errorf("%s: %w", what, ErrNoLink)
	}
	if err != nil {
		return WireGuardDevice{}, err
	}
	d, err := parseDevice(replies)
	if err != nil {
		return d, fmt.Errorf("%s: %w", what, err)
	}
	return d, nil
}

// Set sets the key, the port and the mark of an interface. What it has already stays as it is, with
// the sessions.
func (w *WireGuard) Set(index int, s WireGuardSettings) error {
	body := appendAttr(nil, wgDeviceIndex, native.AppendUint32(nil, uint32(index)))
	body = appendAttr(body, wgDevicePrivate, s.Private[:])
	body = appendAttr(body, wgDevicePort, native.AppendUint16(nil, s.Port))
	body = appendAttr(body, wgDeviceMark, native.AppendUint32(nil, s.Mark))
	return w.send(fmt.Sprintf("set WireGuard's interface %d up", index), body)
}

// SetPeers changes peers, one after the other. A change with more than a thousand ranges is made in
// several steps.
func (w *WireGuard) SetPeers(index int, changes ...WireGuardChange) error {
	for _, body := range changeMessages(index, changes) {
		if err := w.send(fmt.Sprintf("change peers of WireGuard's interface %d", index),
			body); err != nil {
			return err
		}
	}
	return nil
}

func (w *WireGuard) send(what string, body []byte) error {
	err := change(what, func() error {
		_, err := w.ask(w.family, unix.NLM_F_ACK, wgSetDevice, body)
		return err
	})
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: %w", what, ErrNoLink)
	}
	return err
}
