package overlay

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tailscale/wireguard-go/tun"
	"golang.org/x/sys/unix"
)

// vnetSize is the size of the header that the kernel puts before every packet: struct
// virtio_net_hdr, in host byte order.
const vnetSize = 10

// vnet is that header: how to cut a GSO packet, and which checksum is still to be computed.
type vnet struct {
	flags, kind         uint8
	header, segment     uint16
	csumStart, csumFrom uint16 // where the transport header begins, and the checksum's place in it
}

func readVnet(b []byte) vnet {
	u16 := binary.NativeEndian.Uint16
	return vnet{b[0], b[1], u16(b[2:]), u16(b[4:]), u16(b[6:]), u16(b[8:])}
}

// put writes the header to the front of b.
func (v vnet) put(b []byte) {
	b[0], b[1] = v.flags, v.kind
	for i, n := range [...]uint16{v.header, v.segment, v.csumStart, v.csumFrom} {
		binary.NativeEndian.PutUint16(b[2+2*i:], n)
	}
}

func (v vnet) gso() bool { return v.kind != unix.VIRTIO_NET_HDR_GSO_NONE }

var errShortGSO = errors.New("overlay: the kernel's GSO packet is too short for its headers")

// options translates the header for the library's splitter. The kernel's header length is not
// trusted: on forwarded packets it may be that of the first segment.
func (v vnet) options(packet []byte) (tun.GSOOptions, error) {
	o := tun.GSOOptions{HdrLen: v.header, CsumStart: v.csumStart, CsumOffset: v.csumFrom,
		GSOSize:   v.segment,
		NeedsCsum: v.flags&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM != 0}
	switch v.kind &^ unix.VIRTIO_NET_HDR_GSO_ECN {
	case unix.VIRTIO_NET_HDR_GSO_NONE:
		return o, nil
	case unix.VIRTIO_NET_HDR_GSO_TCPV4:
		o.GSOType = tun.GSOTCPv4
	case unix.VIRTIO_NET_HDR_GSO_TCPV6:
		o.GSOType = tun.GSOTCPv6
	case unix.VIRTIO_NET_HDR_GSO_UDP_L4:
		o.GSOType = tun.GSOUDPL4
		o.HdrLen = v.csumStart + 8
		return o, nil
	default:
		return o, fmt.Errorf("overlay: GSO packet of kind %d", v.kind)
	}
	at := int(v.csumStart) + 12
	if len(packet) <= at {
		return o, errShortGSO
	}
	n := uint16(packet[at]>>4) * 4
	if n < 20 || int(v.csumStart)+int(n) > len(packet) {
		return o, errShortGSO
	}
	o.HdrLen = v.csumStart + n
	return o, nil
}
