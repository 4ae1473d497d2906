package main

import (
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// gvisor reads the same fields through gVisor's header accessors, after their validity checks.
func gvisor(b []byte, n int) {
	for range n {
		gvisorOne(b)
	}
}

// Sink keeps the compiler from leaving out reads.
var Sink uint64

func gvisorOne(b []byte) {
	switch header.IPVersion(b) {
	case header.IPv4Version:
		ip := header.IPv4(b)
		if !ip.IsValid(len(b)) {
			return
		}
		src, dst := ip.SourceAddress(), ip.DestinationAddress()
		Sink += uint64(src.As4()[0]) + uint64(dst.As4()[0]) + uint64(ip.TTL()) + uint64(ip.ID()) +
			uint64(ip.FragmentOffset())
		gvisorTransport(ip.Protocol(), ip.Payload())
	case header.IPv6Version:
		ip := header.IPv6(b)
		if !ip.IsValid(len(b)) {
			return
		}
		src, dst := ip.SourceAddress(), ip.DestinationAddress()
		Sink += uint64(src.As16()[0]) + uint64(dst.As16()[0]) + uint64(ip.HopLimit())
		gvisorTransport(uint8(ip.TransportProtocol()), ip.Payload())
	}
}

func gvisorTransport(proto uint8, t []byte) {
	switch proto {
	case uint8(header.TCPProtocolNumber):
		h := header.TCP(t)
		if len(t) >= header.TCPMinimumSize && int(h.DataOffset()) <= len(t) {
			Sink += uint64(h.SourcePort()) + uint64(h.DestinationPort()) +
				uint64(h.SequenceNumber()) + uint64(h.AckNumber()) + uint64(h.Flags()) +
				uint64(h.WindowSize())
		}
	case uint8(header.UDPProtocolNumber):
		h := header.UDP(t)
		if len(t) >= header.UDPMinimumSize && int(h.Length()) <= len(t) {
			Sink += uint64(h.SourcePort()) + uint64(h.DestinationPort())
		}
	case uint8(header.ICMPv4ProtocolNumber):
		if h := header.ICMPv4(t); len(t) >= header.ICMPv4MinimumSize {
			Sink += uint64(h.Type()) + uint64(h.Code()) + uint64(h.Ident())
		}
	case uint8(header.ICMPv6ProtocolNumber):
		if h := header.ICMPv6(t); len(t) >= header.ICMPv6MinimumSize {
			Sink += uint64(h.Type()) + uint64(h.Code())
		}
	}
}

// gopacketSparse decodes with a DecodingLayerParser for the family of the packet, its fastest
// parser that takes every layer.
func gopacketSparse() func(b []byte, n int) {
	var (
		ip4     layers.IPv4
		ip6     layers.IPv6
		tcp     layers.TCP
		udp     layers.UDP
		icmp4   layers.ICMPv4
		icmp6   layers.ICMPv6
		payload gopacket.Payload
	)
	parser := func(first gopacket.LayerType) *gopacket.DecodingLayerParser {
		p := gopacket.NewDecodingLayerParser(first)
		p.SetDecodingLayerContainer(gopacket.DecodingLayerSparse(nil))
		for _, l := range []gopacket.DecodingLayer{&ip4, &ip6, &tcp, &udp, &icmp4, &icmp6,
			&payload} {
			p.AddDecodingLayer(l)
		}
		p.IgnoreUnsupported = true
		return p
	}
	four, six := parser(layers.LayerTypeIPv4), parser(layers.LayerTypeIPv6)
	var decoded []gopacket.LayerType
	return func(b []byte, n int) {
		p := four
		if b[0]>>4 == 6 {
			p = six
		}
		for range n {
			if p.DecodeLayers(b, &decoded) == nil {
				Sink += uint64(len(decoded))
			}
		}
	}
}
