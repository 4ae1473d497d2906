package nl

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/packet"
)

// TCPSocket is a TCP socket of a namespace as it was when it was read. The addresses of IPv4
// connections of IPv6 sockets are IPv4 addresses.
type TCPSocket struct {
	Local, Remote netip.AddrPort
	State         TCPState
	// index of the interface that it is bound to (always for link-local addresses), or 0
	Link int
}

// TCPState is the state of a TCP socket, numbered as the kernel does (include/net/tcp_states.h).
type TCPState uint8

// The states.
const (
	TCPEstablished TCPState = iota + 1
	TCPSynSent
	TCPSynRecv
	TCPFinWait1
	TCPFinWait2
	TCPTimeWait
	TCPClose
	TCPCloseWait
	TCPLastAck
	TCPListen
	TCPClosing
)

// Listener is a socket that waits for others: a listening one of TCP or SCTP, or an unconnected one
// of UDP. One of SCTP that listens at several addresses is several.
type Listener struct {
	Proto packet.Proto // packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP
	Local netip.AddrPort
	Inode uint32
}

// openSockDiag connects to sock_diag(7) in ns, or in the namespace of the calling thread.
func openSockDiag(ns *NS) (*netlink.Handle, error) {
	return open("sock_diag", ns, unix.NETLINK_INET_DIAG, requestTimeout)
}

// Listeners lists the sockets of both families that wait for others, in ns, or in the namespace of
// the calling thread when ns is nil.
func Listeners(ns *NS) ([]Listener, error) {
	h, err := openSockDiag(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	var all []Listener
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			ask := h.SocketDiagTCP
			if proto == unix.IPPROTO_UDP {
				ask = h.SocketDiagUDP
			}
			sockets, err := read("list sockets", func() ([]*netlink.Socket, error) {
				return ask(family)
			})
			if err != nil {
				return nil, err
			}
			for _, s := range sockets {
				if state := TCPState(s.State); state != TCPListen &&
					(proto == unix.IPPROTO_TCP || state != TCPClose) {
					continue
				}
				all = append(all, Listener{packet.Proto(proto),
					netip.AddrPortFrom(addrOf(s.ID.Source), s.ID.SourcePort), s.INode})
			}
		}
	}
	sctp, err := listenersOfSCTP(ns)
	return append(all, sctp...), err
}

// listenersOfSCTP reads a file, which is there while the kernel's module is: sock_diag has SCTP in
// another module, which may be missing.
func listenersOfSCTP(ns *NS) (all []Listener, err error) {
	text := []byte{}
	read := func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/sctp/eps")
		return err
	}
	if ns != nil {
		err = ns.Do(read)
	} else {
		err = read()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list SCTP sockets: %w", err)
	}
	return ParseSCTPListeners(string(text)), nil
}

// ParseSCTPListeners reads the lines of /proc/net/sctp/eps, as net/sctp/proc.c writes them: ENDPT
// SOCK STY SST HBKT LPORT UID INODE and local addresses.
func ParseSCTPListeners(text string) (all []Listener) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 9 || f[3] != strconv.Itoa(int(TCPListen)) {
			continue
		}
		port, bad := strconv.ParseUint(f[5], 10, 16)
		inode, bad2 := strconv.ParseUint(f[7], 10, 32)
		if bad != nil || bad2 != nil {
			continue
		}
		for _, text := range f[8:] {
			if a, err := netip.ParseAddr(text); err == nil {
				all = append(all, Listener{packet.ProtoSCTP,
					netip.AddrPortFrom(a.Unmap(), uint16(port)), uint32(inode)})
			}
		}
	}
	return all
}

// TCPSockets lists the TCP sockets of both families in ns, or in the namespace of the calling
// thread when ns is nil. They come from sock_diag(7).
func TCPSockets(ns *NS) ([]TCPSocket, error) {
	h, err := openSockDiag(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	var all []TCPSocket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := read("list TCP sockets", func() ([]*netlink.Socket, error) {
			return h.SocketDiagTCP(family)
		})
		if err != nil {
			return nil, err
		}
		for _, s := range sockets {
			all = append(all, TCPSocket{
				Local:  netip.AddrPortFrom(addrOf(s.ID.Source), s.ID.SourcePort),
				Remote: netip.AddrPortFrom(addrOf(s.ID.Destination), s.ID.DestinationPort),
				State:  TCPState(s.State), Link: int(s.ID.Interface),
			})
		}
	}
	return all, nil
}
