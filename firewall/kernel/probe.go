package kernel

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// prober sends keepalive probes: bare ACKs as if from the other end, one before what was
// acknowledged last. A living end answers them with its present numbers (as ipfw does). They have
// the mark of Weir's own packets: only the answers are evaluated.
type prober struct {
	four, six int // raw sockets
}

func newProber(mark uint32) (p *prober, err error) {
	p = &prober{four: -1, six: -1}
	if p.four, err = rawSocket(unix.AF_INET, mark); err == nil {
		p.six, err = rawSocket(unix.AF_INET6, mark)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("open a raw socket for keepalive probes: %w", err)
	}
	return p, nil
}

func rawSocket(family int, mark uint32) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.IPPROTO_RAW)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (p *prober) close() {
	for _, fd := range []int{p.four, p.six} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// probe sends one packet to each end. An end that cannot be reached will not answer, which is all
// that matters.
func (p *prober) probe(w *weirEvent) {
	k := flow.Key{LowHi: w.SrcHi, LowLo: w.SrcLo, HighHi: w.DstHi, HighLo: w.DstLo, Ports: w.Ports,
		Proto: packet.ProtoTCP}
	low, high := k.Low(), k.High()
	lowAck, highAck := uint32(w.Packets[0]>>32), uint32(w.Packets[0])
	p.send(low, high, k.Link(), highAck-1, lowAck)
	p.send(high, low, k.Link(), lowAck-1, highAck)
}

func (p *prober) send(from, to netip.AddrPort, link, seq, ack uint32) {
	t := build.TCP{SrcPort: from.Port(), DstPort: to.Port(), Seq: seq, Ack: ack,
		Flags: packet.FlagACK}
	if to.Addr().Is4() {
		if b, err := build.Packet(build.IPv4{Src: from.Addr(), Dst: to.Addr()}, t); err == nil {
			unix.Sendto(p.four, b, 0, &unix.SockaddrInet4{Addr: to.Addr().As4()})
		}
		return
	}
	if b, err := build.Packet(build.IPv6{Src: from.Addr(), Dst: to.Addr()}, t); err == nil {
		unix.Sendto(p.six, b, 0, &unix.SockaddrInet6{Addr: to.Addr().As16(), ZoneId: link})
	}
}
