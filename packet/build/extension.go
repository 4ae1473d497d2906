package build

import (
	"fmt"

	"github.com/weirnet/weir/packet"
)

// HopByHop is an IPv6 hop-by-hop options header; Options are padded with PadN.
type HopByHop struct{ Options []byte }

// Destination is an IPv6 destination options header; Options are padded with PadN.
type Destination struct{ Options []byte }

// Routing is an IPv6 routing header. Data is padded to a multiple of 8 bytes less 4.
type Routing struct {
	Type, SegmentsLeft uint8
	Data               []byte
}

// Fragment is an IPv6 fragment header. Next is the protocol it announces, that of the
// layer above when zero.
type Fragment struct {
	ID   uint32
	Off  uint16 // in bytes, a multiple of 8
	More bool
	Next uint8
}

// AH is an IPsec authentication header; ICV is padded to a multiple of 8 bytes less 4.
type AH struct {
	SPI, Seq uint32
	ICV      []byte
}

// RouterAlert returns the hop-by-hop option of RFC 2711 that every MLD packet has.
func RouterAlert() []byte { return []byte{5, 2, 0, 0} }

func (HopByHop) number() int    { return int(packet.ProtoHopByHop) }
func (Destination) number() int { return int(packet.ProtoDestination) }
func (Routing) number() int     { return int(packet.ProtoRouting) }
func (Fragment) number() int    { return int(packet.ProtoFragment) }
func (AH) number() int          { return int(packet.ProtoAH) }

func (l HopByHop) wrap(rest []byte, c context) ([]byte, error) {
	return options(l.Options, rest, c)
}

func (l Destination) wrap(rest []byte, c context) ([]byte, error) {
	return options(l.Options, rest, c)
}

func options(o, rest []byte, c context) ([]byte, error) {
	h := append([]byte{upper(c.next), 0}, o...)
	switch pad := -len(h) & 7; pad {
	case 0:
	case 1:
		h = append(h, 0)
	default:
		h = append(h, 1, uint8(pad-2))
		h = append(h, make([]byte, pad-2)...)
	}
	if len(h) > 2048 {
		return nil, fmt.Errorf("options header of %d bytes: at most 2048", len(h))
	}
	h[1] = uint8(len(h)/8 - 1)
	return append(h, rest...), nil
}

func (l Routing) wrap(rest []byte, c context) ([]byte, error) {
	h := append([]byte{upper(c.next), 0, l.Type, l.SegmentsLeft}, l.Data...)
	h = append(h, make([]byte, -len(h)&7)...)
	if len(h) > 2048 {
		return nil, fmt.Errorf("routing header of %d bytes: at most 2048", len(h))
	}
	h[1] = uint8(len(h)/8 - 1)
	return append(h, rest...), nil
}

func (l Fragment) wrap(rest []byte, c context) ([]byte, error) {
	if l.Off%8 != 0 {
		return nil, fmt.Errorf("fragment offset %d: want a multiple of 8", l.Off)
	}
	h := make([]byte, 8, 8+len(rest))
	h[0] = l.Next
	if l.Next == 0 {
		h[0] = upper(c.next)
	}
	word := l.Off
	if l.More {
		word |= 1
	}
	be.PutUint16(h[2:], word)
	be.PutUint32(h[4:], l.ID)
	return append(h, rest...), nil
}

func (l AH) wrap(rest []byte, c context) ([]byte, error) {
	h := make([]byte, 12, 12+len(l.ICV)+8+len(rest))
	h[0] = upper(c.next)
	be.PutUint32(h[4:], l.SPI)
	be.PutUint32(h[8:], l.Seq)
	h = append(h, l.ICV...)
	h = append(h, make([]byte, -len(h)&7)...)
	if len(h) > 1028 {
		return nil, fmt.Errorf("authentication header of %d bytes: at most 1028", len(h))
	}
	h[1] = uint8(len(h)/4 - 2)
	return append(h, rest...), nil
}
