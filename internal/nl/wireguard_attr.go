package nl

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// The commands and attributes of WireGuard in generic netlink, as in linux/wireguard.h.
const (
	wgGetDevice, wgSetDevice = 0, 1

	wgDeviceIndex, wgDevicePrivate, wgDevicePort, wgDeviceMark, wgDevicePeers = 1, 3, 6, 7, 8

	wgPeerKey, wgPeerPreshared, wgPeerFlags, wgPeerEndpoint, wgPeerKeepalive = 1, 2, 3, 4, 5
	wgPeerHandshake, wgPeerReceived, wgPeerSent, wgPeerAllowed               = 6, 7, 8, 9

	wgRemove, wgReplace, wgOnly = 1, 2, 4 // flags of a peer

	wgRangeFamily, wgRangeAddr, wgRangeBits = 1, 2, 3
)

// An attribute may have 65,535 bytes. A range takes 40 at most.
const rangesInMessage = 1000

var native = binary.NativeEndian

const (
	attrHeader = 4
	nested     = unix.NLA_F_NESTED
	attrType   = 1<<14 - 1 // the rest are flags
)

func aligned(n int) int { return (n + 3) &^ 3 }

// appendAttr appends an attribute of netlink.
func appendAttr(b []byte, kind uint16, value []byte) []byte {
	b = native.AppendUint16(b, uint16(attrHeader+len(value)))
	b = native.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, aligned(len(value))-len(value))...)
}

// attrs yields the attributes in b and cuts them off. What is left at the end is not one.
func attrs(b *[]byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(*b) >= attrHeader {
			size := int(native.Uint16(*b))
			if size < attrHeader || size > len(*b) {
				return
			}
			kind, value := native.Uint16((*b)[2:])&attrType, (*b)[attrHeader:size]
			*b = (*b)[min(aligned(size), len(*b)):]
			if !yield(kind, value) {
				return
			}
		}
	}
}

// changeMessages encodes changes of peers as bodies of messages.
func changeMessages(index int, changes []WireGuardChange) (all [][]byte) {
	device := appendAttr(nil, wgDeviceIndex, native.AppendUint32(nil, uint32(index)))
	add := func(peers []byte) {
		body := append([]byte(nil), device...)
		all = append(all, appendAttr(body, wgDevicePeers|nested, peers))
	}
	var peers []byte
	for _, c := range changes {
		for rest := c.AllowedIPs; ; {
			n := min(len(rest), rangesInMessage)
			c.AllowedIPs, rest = rest[:n], rest[n:]
			one := appendAttr(nil, nested, appendChange(nil, c))
			if len(peers) > 0 && len(peers)+len(one) > rangesInMessage*40 {
				add(peers)
				peers = nil
			}
			if peers = append(peers, one...); len(rest) == 0 {
				break
			}
			c = WireGuardChange{Key: c.Key, Only: true}
		}
	}
	if peers != nil {
		add(peers)
	}
	return all
}

func appendChange(b []byte, c WireGuardChange) []byte {
	b = appendAttr(b, wgPeerKey, c.Key[:])
	if c.Remove {
		return appendAttr(b, wgPeerFlags, native.AppendUint32(nil, wgRemove))
	}
	flags := uint32(0)
	if c.Replace {
		flags |= wgReplace
	}
	if c.Only {
		flags |= wgOnly
	}
	b = appendAttr(b, wgPeerFlags, native.AppendUint32(nil, flags))
	if c.Preshared != nil {
		b = appendAttr(b, wgPeerPreshared, c.Preshared[:])
	}
	if c.Endpoint.IsValid() {
		b = appendAttr(b, wgPeerEndpoint, sockaddr(c.Endpoint))
	}
	if c.Keepalive != nil {
		b = appendAttr(b, wgPeerKeepalive, native.AppendUint16(nil, *c.Keepalive))
	}
	var ranges []byte
	for _, r := range c.AllowedIPs {
		family := native.AppendUint16(nil, uint16(familyOf(r.Addr())))
		one := appendAttr(nil, wgRangeFamily, family)
		one = appendAttr(one, wgRangeAddr, r.Addr().AsSlice())
		one = appendAttr(one, wgRangeBits, []byte{byte(r.Bits())})
		ranges = appendAttr(ranges, nested, one)
	}
	if ranges != nil {
		b = appendAttr(b, wgPeerAllowed|nested, ranges)
	}
	return b
}

// sockaddr encodes an endpoint as struct sockaddr_in or sockaddr_in6.
func sockaddr(a netip.AddrPort) []byte {
	b := native.AppendUint16(nil, uint16(familyOf(a.Addr())))
	b = binary.BigEndian.AppendUint16(b, a.Port())
	if a.Addr().Is4() {
		b = append(b, a.Addr().AsSlice()...)
		return append(b, make([]byte, 8)...)
	}
	b = append(b, 0, 0, 0, 0) // flow label
	b = append(b, a.Addr().AsSlice()...)
	return append(b, 0, 0, 0, 0) // interface of a link-local address
}

func parseSockaddr(b []byte) (netip.AddrPort, bool) {
	switch {
	case len(b) == 16 && native.Uint16(b) == unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:])), binary.BigEndian.Uint16(b[2:])),
			true
	case len(b) == 28 && native.Uint16(b) == unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:])),
			binary.BigEndian.Uint16(b[2:])), true
	}
	return netip.AddrPort{}, false
}

// parseDevice decodes a dump. A peer with many ranges comes in several messages in a row.
func parseDevice(replies [][]byte) (d WireGuardDevice, err error) {
	for _, reply := range replies {
		for kind, value := range attrs(&reply) {
			switch {
			case kind == wgDevicePrivate && len(value) == len(d.Private):
				d.Private = [32]byte(value)
			case kind == wgDevicePort && len(value) == 2:
				d.Port = native.Uint16(value)
			case kind == wgDeviceMark && len(value) == 4:
				d.Mark = native.Uint32(value)
			case kind == wgDevicePeers:
				for _, one := range attrs(&value) {
					p, err := parsePeer(one)
					if err != nil {
						return d, err
					}
					if n := len(d.Peers); n > 0 && d.Peers[n-1].Key == p.Key {
						d.Peers[n-1].AllowedIPs = append(d.Peers[n-1].AllowedIPs, p.AllowedIPs...)
						continue
					}
					d.Peers = append(d.Peers, p)
				}
			}
		}
		if len(reply) > 0 {
			return d, fmt.Errorf("%d bytes of an answer are not an attribute", len(reply))
		}
	}
	return d, nil
}

func parsePeer(b []byte) (p WireGuardPeer, err error) {
	known := false
	for kind, value := range attrs(&b) {
		switch {
		case kind == wgPeerKey && len(value) == len(p.Key):
			p.Key, known = [32]byte(value), true
		case kind == wgPeerEndpoint:
			p.Endpoint, _ = parseSockaddr(value)
		case kind == wgPeerHandshake && len(value) == 16:
			sec, nsec := int64(native.Uint64(value)), int64(native.Uint64(value[8:]))
			if sec != 0 || nsec != 0 {
				p.LastHandshake = time.Unix(sec, nsec)
			}
		case kind == wgPeerReceived && len(value) == 8:
			p.Received = native.Uint64(value)
		case kind == wgPeerSent && len(value) == 8:
			p.Sent = native.Uint64(value)
		case kind == wgPeerAllowed:
			for _, one := range attrs(&value) {
				if r := parseRange(one); r.IsValid() {
					p.AllowedIPs = append(p.AllowedIPs, r)
				}
			}
		}
	}
	if !known || len(b) > 0 {
		return p, fmt.Errorf("a peer without a key, or %d bytes that are not an attribute", len(b))
	}
	return p, nil
}

// parseRange returns a range that is not valid for what is none.
func parseRange(b []byte) netip.Prefix {
	var addr netip.Addr
	bits := -1
	for kind, value := range attrs(&b) {
		switch {
		case kind == wgRangeAddr:
			addr, _ = netip.AddrFromSlice(value)
		case kind == wgRangeBits && len(value) == 1:
			bits = int(value[0])
		}
	}
	return netip.PrefixFrom(addr, bits)
}
