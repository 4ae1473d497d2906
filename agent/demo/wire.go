package demo

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
)

// Wire is the result of the capture on the wire between the two hosts.
type Wire struct {
	WireGuard int `json:"wireguard"` // UDP packets from and to WireGuard's port
	Bytes     int `json:"bytes"`     // in these
	// ARP, neighbour discovery and multicast reports: who is on the wire
	Neighbors int      `json:"neighbors"`
	Readable  int      `json:"readable"` // frames with the text of an answer in it
	Others    []string `json:"others,omitempty"`
	Sample    []string `json:"sample"` // the first packets, as tcpdump shows them
}

const (
	wirePort   = 51820
	sampleSize = 4
)

// sniffer listens on an interface.
type sniffer struct {
	fd    int
	stop  atomic.Bool
	ended chan Wire
}

// listenToWire listens on an interface of a node until end is called.
func listenToWire(n *nstest.Node, iface string) (*sniffer, error) {
	link, err := n.Netlink().LinkByName(iface)
	if err != nil {
		return nil, err
	}
	s := &sniffer{fd: -1, ended: make(chan Wire, 1)}
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8 // in network order
	err = n.Do(func() (err error) {
		s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		return err
	})
	if err == nil {
		// So that the reader notices the end.
		err = unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
			&unix.Timeval{Usec: 50_000})
	}
	if err == nil {
		err = unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index})
	}
	if err != nil {
		if s.fd >= 0 {
			unix.Close(s.fd)
		}
		return nil, fmt.Errorf("listen to the wire: %w", err)
	}
	go s.read()
	return s, nil
}

// end returns what was seen.
func (s *sniffer) end() Wire {
	s.stop.Store(true)
	return <-s.ended
}

func (s *sniffer) read() {
	defer unix.Close(s.fd)
	w := Wire{Sample: []string{}}
	frame := make([]byte, 1<<17)
	for {
		n, _, err := unix.Recvfrom(s.fd, frame, 0)
		switch {
		case err == nil:
			w.see(frame[:n])
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			w.Others = append(w.Others, err.Error())
			s.stop.Store(true)
		}
		if err != nil && s.stop.Load() {
			s.ended <- w
			return
		}
	}
}

// see looks at one frame.
func (w *Wire) see(frame []byte) {
	var p packet.Packet
	p.DecodeFrame(packet.LinkEthernet, frame)
	if bytes.Contains(frame, []byte("hello from")) {
		w.Readable++
	}
	switch {
	case p.Version == 0, p.Proto == packet.ProtoICMPv6 &&
		(p.Src().IsUnspecified() || p.Src().IsLinkLocalUnicast()):
		w.Neighbors++
	case p.Proto == packet.ProtoUDP && p.SrcPort() == wirePort && p.DstPort() == wirePort:
		w.WireGuard++
		w.Bytes += int(p.Len())
		if len(w.Sample) < sampleSize {
			w.Sample = append(w.Sample, describe(&p))
		}
	default:
		w.Others = append(w.Others, describe(&p))
	}
}

func describe(p *packet.Packet) string {
	src, dst := netip.AddrPortFrom(p.Src(), p.SrcPort()), netip.AddrPortFrom(p.Dst(), p.DstPort())
	return fmt.Sprintf("%s > %s: %s, %d bytes", src, dst, p.Proto, p.Len())
}
