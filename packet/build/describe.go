package build

import (
	"errors"
	"fmt"

	"github.com/weirnet/weir/packet"
)

// build makes the bytes of the described packet.
func (d *description) build() ([]byte, error) {
	headers, err := d.headers()
	if err != nil {
		return nil, err
	}
	layers := headers[:len(headers):len(headers)]
	if d.fragOff == 0 {
		if t := d.transport(); t != nil {
			layers = append(layers, t)
		}
	}
	b, err := Packet(layers...)
	if err != nil {
		return nil, err
	}
	want := d.length
	if want == 0 {
		want = len(b)
		if d.fragOff > 0 || d.headFlags&packet.FragMF != 0 { // data, in units of 8 bytes
			bare, err := Packet(headers...)
			if err != nil {
				return nil, err
			}
			data := max(len(b)-len(bare), 8)
			want = len(bare) + (data+7)&^7
		}
	}
	if want < len(b) {
		return nil, fmt.Errorf("len %d: the headers alone have %d bytes", want, len(b))
	}
	if pad := want - len(b); pad > 0 {
		return Packet(append(layers, Data(make([]byte, pad)))...)
	}
	return b, nil
}

// headers returns the layers below the transport header.
func (d *description) headers() ([]Layer, error) {
	src, dst := d.src.Addr(), d.dst.Addr()
	if src.Is4() {
		switch {
		case d.extension != 0:
			return nil, errors.New("ext: IPv4 has no extension headers")
		case d.ipid > 0xffff:
			return nil, errors.New("ipid: IPv4 has 16 bits for it")
		case d.ttl == 0:
			return nil, errors.New("ttl 0 never leaves a host")
		}
		return []Layer{IPv4{
			Src: src, Dst: dst, TOS: d.tos, TTL: d.ttl, ID: uint16(d.ipid),
			Flags: d.headFlags, FragOff: d.fragOff, Options: optionBytes(d.options),
		}, Upper(d.proto)}, nil
	}
	switch {
	case d.headFlags&(packet.FragDF|packet.FragRF) != 0:
		return nil, errors.New("df, rf: IPv6 has no such flags")
	case d.options&^packet.OptRouterAlert != 0:
		return nil, errors.New("opt: IPv6 has ra only")
	case d.ttl == 0:
		return nil, errors.New("ttl 0 never leaves a host")
	}
	layers := []Layer{IPv6{Src: src, Dst: dst, Class: d.tos, HopLimit: d.ttl}}
	if d.extension&packet.ExtHopByHop != 0 || d.options != 0 {
		var o []byte
		if d.options != 0 {
			o = RouterAlert()
		}
		layers = append(layers, HopByHop{Options: o})
	}
	if d.extension&packet.ExtRouting0 != 0 {
		layers = append(layers, Routing{Type: 0})
	} else if d.extension&packet.ExtRouting != 0 {
		layers = append(layers, Routing{Type: 4})
	}
	if d.fragment || d.hasID {
		layers = append(layers, Fragment{ID: d.ipid, Off: d.fragOff,
			More: d.headFlags&packet.FragMF != 0})
	}
	if d.extension&packet.ExtAH != 0 {
		layers = append(layers, AH{})
	}
	if d.extension&packet.ExtDestination != 0 {
		layers = append(layers, Destination{})
	}
	return append(layers, Upper(d.proto)), nil
}

// Upper stands for an upper layer of that protocol number that is not built: the header below
// announces it, and the bytes of the next layer follow.
type Upper uint8

func (l Upper) number() int { return int(l) }

func (l Upper) wrap(rest []byte, _ context) ([]byte, error) { return rest, nil }

// transport returns the transport header, nil for a protocol without one.
func (d *description) transport() Layer {
	v4 := d.src.Addr().Is4()
	sport, dport := d.src.Port(), d.dst.Port()
	switch {
	case d.proto == packet.ProtoTCP:
		return TCP{SrcPort: sport, DstPort: dport, Seq: d.seq, Ack: d.ack, Flags: d.flags,
			Window: d.win}
	case d.proto == packet.ProtoUDP:
		return UDP{SrcPort: sport, DstPort: dport}
	case d.proto == packet.ProtoUDPLite:
		return UDPLite{SrcPort: sport, DstPort: dport}
	case d.proto == packet.ProtoSCTP:
		return SCTP{SrcPort: sport, DstPort: dport, VTag: d.rest}
	case d.proto == packet.ProtoICMP && v4:
		return ICMP{Type: d.icmpType(8), Code: d.code, Rest: d.rest}
	case d.proto == packet.ProtoICMPv6 && !v4:
		return ICMPv6{Type: d.icmpType(128), Code: d.code, Rest: d.rest}
	}
	return nil
}

// icmpType returns the given type, or the default.
func (d *description) icmpType(ifAbsent uint8) uint8 {
	if d.hasKind {
		return d.kind
	}
	return ifAbsent
}

// optionBytes returns IPv4 options, with space for one address or timestamp each.
func optionBytes(set uint8) []byte {
	var o []byte
	if set&packet.OptSSRR != 0 {
		o = append(o, 137, 7, 4, 0, 0, 0, 0)
	}
	if set&packet.OptLSRR != 0 {
		o = append(o, 131, 7, 4, 0, 0, 0, 0)
	}
	if set&packet.OptRR != 0 {
		o = append(o, 7, 7, 4, 0, 0, 0, 0)
	}
	if set&packet.OptTS != 0 {
		o = append(o, 68, 8, 5, 0, 0, 0, 0, 0)
	}
	if set&packet.OptRouterAlert != 0 {
		o = append(o, 148, 4, 0, 0)
	}
	return o
}
