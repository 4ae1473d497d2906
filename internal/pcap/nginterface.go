package pcap

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/weirnet/weir/packet"
)

// ngInterface is an interface description.
type ngInterface struct {
	link    packet.Link
	known   bool   // the decoder supports the link
	number  uint16 // link type
	name    string
	snaplen uint32
	units   uint64 // timestamp units per second
	offset  int64  // seconds to add to timestamps
}

// maxName bounds the name of an interface: Linux has 15 bytes, Windows a path with a UUID. A
// capture may describe MaxInterfaces of them.
const maxName = 256

// describe reads an interface description block.
func (d *Reader) describe(b []byte) error {
	if len(b) < 8 {
		return errors.New("interface description too short")
	}
	if len(d.ng.interfaces) == MaxInterfaces {
		return fmt.Errorf("more than %d interfaces", MaxInterfaces)
	}
	i := ngInterface{number: d.order.Uint16(b), snaplen: d.order.Uint32(b[4:]), units: 1_000_000}
	i.link, i.known = link(uint32(i.number))
	err := d.options(b[8:], func(code uint16, v []byte) error {
		switch {
		case code == optName:
			if len(v) > maxName {
				return fmt.Errorf("interface name of %d bytes: %w of %d", len(v), errTooLong,
					maxName)
			}
			i.name = string(v)
		case code == optTSResol && len(v) == 1:
			var ok bool
			if i.units, ok = resolution(v[0]); !ok {
				return fmt.Errorf("timestamp resolution %#x is too fine", v[0])
			}
		case code == optTSOffset && len(v) == 8:
			i.offset = int64(d.order.Uint64(v))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("interface description: %w", err)
	}
	d.ng.interfaces = append(d.ng.interfaces, i)
	return nil
}

// resolution returns the units per second of an if_tsresol byte.
func resolution(b byte) (units uint64, ok bool) {
	if b&0x80 != 0 {
		n := b & 0x7f
		return 1 << (n & 63), n < 64
	}
	units = 1
	for range b {
		hi, lo := bits.Mul64(units, 10)
		if hi != 0 {
			return 0, false
		}
		units = lo
	}
	return units, true
}

// iface returns the description of interface n.
func (d *Reader) iface(n uint32) (ngInterface, error) {
	if uint64(n) >= uint64(len(d.ng.interfaces)) {
		return ngInterface{}, fmt.Errorf("packet of interface %d, but there are %d", n,
			len(d.ng.interfaces))
	}
	i := d.ng.interfaces[n]
	if !i.known {
		return ngInterface{}, fmt.Errorf("link type %d is not supported: want Ethernet, raw IP, "+
			"Linux "+
			"cooked or loopback", i.number)
	}
	return i, nil
}

// time converts a timestamp. It is limited to what time.Time can print.
func (i ngInterface) time(ts uint64) time.Time {
	sec, rest := ts/i.units, ts%i.units
	hi, lo := bits.Mul64(rest, 1_000_000_000)
	nsec, _ := bits.Div64(hi, lo, i.units)
	offset := max(min(i.offset, maxTSSeconds), -maxTSSeconds)
	return time.Unix(int64(min(sec, maxTSSeconds))+offset, int64(nsec)).UTC()
}
