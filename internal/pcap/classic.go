package pcap

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/packet"
)

// classic is the header of a pcap file.
type classic struct {
	nano  bool
	minor uint16 // of version 2
	link  packet.Link
}

// openClassic reads the file header of 24 bytes.
func (d *Reader) openClassic(nano bool) error {
	h, err := d.more(24)
	if err != nil {
		return fmt.Errorf("pcap header: %w", err)
	}
	major, minor := d.order.Uint16(h[4:]), d.order.Uint16(h[6:])
	if major != 2 {
		return fmt.Errorf("pcap version %d.%d: only 2.0 and later are supported", major, minor)
	}
	// The upper bits describe a frame check sequence, which follows the packet.
	n := d.order.Uint32(h[20:]) & 0xffff
	l, ok := link(n)
	if !ok {
		return fmt.Errorf("link type %d is not supported: want Ethernet, raw IP, Linux cooked or "+
			"loopback", n)
	}
	d.classic = &classic{nano: nano, minor: minor, link: l}
	return nil
}

// nextClassic reads a record: seconds, fraction, captured length, length, data.
func (d *Reader) nextClassic() (Record, error) {
	h, err := d.fill(16)
	if err != nil {
		return Record{}, err
	}
	sec, frac := int64(d.order.Uint32(h)), int64(d.order.Uint32(h[4:]))
	if !d.classic.nano {
		frac *= 1000
	}
	captured, length := d.order.Uint32(h[8:]), d.order.Uint32(h[12:])
	// Before 2.3 the lengths stood the other way round, and some programs wrote them so as 2.3
	// (libpcap, sf-pcap.c).
	if d.classic.minor < 3 || d.classic.minor == 3 && captured > length {
		captured, length = length, captured
	}
	if captured > MaxPacket {
		return Record{}, fmt.Errorf("packet of %d bytes: %w of %d", captured, errTooLong, MaxPacket)
	}
	data, err := d.more(int(captured))
	if err != nil {
		return Record{}, err
	}
	return Record{
		Time: time.Unix(sec, frac).UTC(), Data: data, Len: max(int(length), int(captured)),
		Link: d.classic.link,
	}, nil
}
