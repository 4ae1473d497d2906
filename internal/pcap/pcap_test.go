package pcap

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// udp is a small UDP packet, without link-layer header.
func udp(t testing.TB, port uint16) []byte {
	t.Helper()
	b, err := build.Packet(
		build.IPv4{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2")},
		build.UDP{SrcPort: port, DstPort: 53}, build.Data("hello"),
	)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readAll reads every record. The error is nil if the file ends between two records.
func readAll(file []byte) ([]Record, error) {
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	var recs []Record
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return recs, nil
		}
		if err != nil {
			return recs, err
		}
		rec.Data = bytes.Clone(rec.Data)
		recs = append(recs, rec)
	}
}

// equal compares records; times as instants.
func equal(a, b Record) bool {
	return a.Time.Equal(b.Time) && bytes.Equal(a.Data, b.Data) && a.Len == b.Len &&
		a.Link == b.Link &&
		a.Interface == b.Interface && a.Direction == b.Direction && a.Comment == b.Comment
}

// words appends numbers in the given order, each with the size of its type.
func words(order binary.ByteOrder, values ...any) []byte {
	var out bytes.Buffer
	for _, v := range values {
		if b, ok := v.([]byte); ok {
			out.Write(b)
			continue
		}
		if err := binary.Write(&out, order, v); err != nil {
			panic(err)
		}
	}
	return out.Bytes()
}

func u32(n int) uint32 { return uint32(n) }

var orders = map[string]binary.ByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian}

func TestClassic(t *testing.T) {
	pkt := udp(t, 1000)
	for name, order := range orders {
		for magic, frac := range map[uint32]uint32{magicMicro: 123456, magicNano: 123456789} {
			file := words(order, magic, uint16(2), uint16(4), uint64(0), uint32(65535),
				uint32(linkRaw),
				uint32(1700000000), frac, u32(len(pkt)), uint32(900), pkt,
				uint32(1700000001), uint32(0), uint32(0), uint32(0))
			recs, err := readAll(file)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			ns := int64(123456789)
			if magic == magicMicro {
				ns = 123456000
			}
			want := Record{Time: time.Unix(1700000000, ns), Data: pkt, Len: 900,
				Link: packet.LinkRaw}
			if len(recs) != 2 || !equal(recs[0], want) || len(recs[1].Data) != 0 {
				t.Errorf("%s: %+v", name, recs)
			}
			var z bytes.Buffer
			w := gzip.NewWriter(&z)
			w.Write(file)
			w.Close()
			if zipped, err := readAll(z.Bytes()); err != nil || len(zipped) != 2 ||
				!equal(zipped[0], want) {
				t.Errorf("%s: gzip: %+v, %v", name, zipped, err)
			}
			if _, err := readAll(z.Bytes()[:z.Len()-10]); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: cut gzip: %v", name, err)
			}
		}
	}
}

func TestLinkTypes(t *testing.T) {
	for n, want := range map[uint32]packet.Link{
		0: packet.LinkNull, 1: packet.LinkEthernet, 12: packet.LinkRaw, 14: packet.LinkRaw,
		101: packet.LinkRaw, 108: packet.LinkLoop,
		113: packet.LinkSLL, 228: packet.LinkRaw, 229: packet.LinkRaw, 276: packet.LinkSLL2,
		1 | 0x54000000: packet.LinkEthernet,
	} {
		file := words(binary.LittleEndian, uint32(magicMicro), uint16(2), uint16(4), uint64(0),
			uint32(0), n, make([]byte, 16))
		if recs, err := readAll(file); err != nil || len(recs) != 1 || recs[0].Link != want {
			t.Errorf("link type %d: %v, %v", n, recs, err)
		}
	}
}

// block makes a pcapng block.
func block(order binary.ByteOrder, kind uint32, values ...any) []byte {
	body := words(order, values...)
	body = append(body, make([]byte, -len(body)&3)...)
	n := u32(len(body) + 12)
	return words(order, kind, n, body, n)
}

func option(order binary.ByteOrder, code uint16, v ...any) []byte {
	b := words(order, v...)
	return words(order, code, uint16(len(b)), b, make([]byte, -len(b)&3))
}

func section(order binary.ByteOrder) []byte {
	return block(order, magicNG, uint32(magicOrder), uint16(1), uint16(0), int64(-1),
		option(order, 2, []byte("hardware")))
}

func TestNG(t *testing.T) {
	pkt := udp(t, 1000)
	eth := append(make([]byte, 14), pkt...)
	eth[12], eth[13] = 8, 0
	for name, order := range orders {
		const micros = uint64(1700000000_123456)
		file := bytes.Join([][]byte{
			section(order),
			block(order, blockInterface, uint16(linkEthernet), uint16(0), uint32(20),
				option(order, optName, []byte("eth0"))),
			block(order, blockInterface, uint16(linkRaw), uint16(0), uint32(0),
				option(order, optTSResol, uint8(9)), option(order, optTSOffset, int64(1000000000)),
				option(order, optEnd)),
			block(order, blockInterface, uint16(linkRaw), uint16(0), uint32(0),
				option(order, optTSResol, uint8(0x80|10))),
			block(order, 0x0bad, []byte("an unknown block")),
			block(order, blockEnhanced, uint32(0), uint32(micros>>32), uint32(micros&0xffffffff),
				u32(len(eth)), uint32(1500), eth, make([]byte, -len(eth)&3),
				option(order, optComment, []byte("why not")), option(order, optEPBFlags, uint32(2)),
				option(order, optEnd)),
			block(order, blockEnhanced, uint32(1), uint32(0), uint32(5), u32(len(pkt)),
				u32(len(pkt)), pkt, make([]byte, -len(pkt)&3),
				option(order, optEPBFlags, uint32(1))),
			block(order, blockEnhanced, uint32(2), uint32(0), uint32(1536), u32(len(pkt)),
				u32(len(pkt)), pkt),
			block(order, blockSimple, uint32(100), eth),
			block(order, blockPacketOld, uint16(1), uint16(7), uint32(0), uint32(6), u32(len(pkt)),
				u32(len(pkt)), pkt),
			section(order),
			block(order, blockInterface, uint16(linkSLL2), uint16(0), uint32(0)),
			block(order, blockEnhanced, uint32(0), uint32(0), uint32(0), uint32(3), uint32(3),
				[]byte("abc")),
		}, nil)
		recs, err := readAll(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, want := range []Record{
			{Time: time.UnixMicro(int64(micros)), Data: eth, Len: 1500, Link: packet.LinkEthernet,
				Interface: "eth0", Direction: Outbound, Comment: "why not"},
			{Time: time.Unix(1000000000, 5), Data: pkt, Len: len(pkt), Link: packet.LinkRaw,
				Direction: Inbound},
			{Time: time.Unix(1, 500000000), Data: pkt, Len: len(pkt), Link: packet.LinkRaw},
			{Data: eth[:20], Len: 100, Link: packet.LinkEthernet, Interface: "eth0"},
			{Time: time.Unix(1000000000, 6), Data: pkt, Len: len(pkt), Link: packet.LinkRaw},
			{Time: time.Unix(0, 0), Data: []byte("abc"), Len: 3, Link: packet.LinkSLL2},
		} {
			if i >= len(recs) || !equal(recs[i], want) {
				t.Errorf("%s: record %d: got %+v\nwant %+v", name, i, recs[i:min(i+1, len(recs))],
					want)
			}
		}
		if len(recs) != 6 {
			t.Errorf("%s: %d records", name, len(recs))
		}
		for n := range len(file) - 1 {
			if got, err := readAll(file[:n]); err == nil && len(got) == len(recs) {
				t.Fatalf("%s: the first %d of %d bytes were enough", name, n, len(file))
			}
		}
	}
}

// TestMixedSections joins files of both byte orders, as cat does.
func TestMixedSections(t *testing.T) {
	var file []byte
	for _, order := range orders {
		file = append(file, section(order)...)
		file = append(file, block(order, blockInterface, uint16(linkRaw), uint16(0), uint32(0))...)
		file = append(file, block(order, blockSimple, uint32(4), []byte("abcd"))...)
	}
	if recs, err := readAll(file); err != nil || len(recs) != 2 || string(recs[1].Data) != "abcd" {
		t.Errorf("%+v, %v", recs, err)
	}
}

// TestOldVersions: before 2.3 the length on the wire stands in front of the captured one.
func TestOldVersions(t *testing.T) {
	lo := binary.LittleEndian
	for _, tc := range []struct {
		minor         uint16
		first, second uint32
	}{{0, 9, 4}, {1, 9, 4}, {2, 9, 4}, {3, 9, 4}, {3, 4, 9}, {4, 4, 9}} {
		file := words(lo, uint32(magicMicro), uint16(2), tc.minor, uint64(0), uint32(0), uint32(1),
			uint64(0), tc.first, tc.second, []byte("abcd"))
		all, err := readAll(file)
		if err != nil || len(all) != 1 || len(all[0].Data) != 4 || all[0].Len != 9 {
			t.Errorf("2.%d, lengths %d and %d: %v, %v", tc.minor, tc.first, tc.second, all, err)
		}
	}
}

func TestHostileFiles(t *testing.T) {
	lo := binary.LittleEndian
	head := words(lo, uint32(magicMicro), uint16(2), uint16(4), uint64(0), uint32(0), uint32(1))
	iface := block(lo, blockInterface, uint16(1), uint16(0), uint32(0))
	ng := func(blocks ...[]byte) []byte { return append(section(lo), bytes.Join(blocks, nil)...) }
	for name, tc := range map[string]struct {
		file []byte
		want string
	}{
		"empty":         {nil, "no header"},
		"three bytes":   {[]byte{1, 2, 3}, "no header"},
		"text":          {[]byte("hello, world"), "neither pcap nor pcapng"},
		"gzip nonsense": {[]byte{0x1f, 0x8b, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, "gzip"},
		"cut header":    {head[:23], "unexpected EOF"},
		"version 1": {words(lo, uint32(magicMicro), uint16(1), uint16(4),
			make([]byte, 16)), "version 1.4"},
		"link type": {words(lo, uint32(magicMicro), uint16(2), uint16(4), uint64(0),
			uint32(0), uint32(105)), "link type 105"},
		"cut record": {append(bytes.Clone(head), 1, 2, 3), "unexpected EOF"},
		"cut data": {append(bytes.Clone(head),
			words(lo, uint64(0), uint32(5), uint32(5), []byte("abcd"))...), "unexpected EOF"},
		"huge packet": {append(bytes.Clone(head),
			words(lo, uint64(0), uint32(1<<20+1), uint32(5))...), "length beyond the limit"},
		"negative packet": {append(bytes.Clone(head),
			words(lo, uint64(0), uint32(1<<32-1), uint32(5))...), "length beyond the limit"},
		"order magic": {words(lo, uint32(magicNG), uint32(28), uint32(0x01020304),
			make([]byte, 16)), "byte-order magic"},
		"ng version": {block(lo, magicNG, uint32(magicOrder), uint16(2), uint16(0),
			int64(-1)), "version 2.0"},
		"section length": {words(lo, uint32(magicNG), uint32(27), uint32(magicOrder), uint16(1),
			uint16(0), int64(-1), uint32(27)), "section header of 27 bytes"},
		"section end": {words(lo, uint32(magicNG), uint32(28), uint32(magicOrder), uint16(1),
			uint16(0), int64(-1), uint32(32)), "ends with 32"},
		"block length 8":     {ng(words(lo, uint32(6), uint32(8))), "block of 8 bytes"},
		"block length odd":   {ng(words(lo, uint32(6), uint32(13))), "block of 13 bytes"},
		"block too long":     {ng(words(lo, uint32(6), uint32(1<<30))), "length beyond the limit"},
		"unknown long block": {ng(words(lo, uint32(99), uint32(1<<31))), "unexpected EOF"},
		"block end":          {ng(words(lo, uint32(99), uint32(12), uint32(16))), "ends with 16"},
		"no interface": {ng(block(lo, blockSimple, uint32(4), []byte("abcd"))),
			"interface 0, but there are 0"},
		"wrong interface": {ng(iface, block(lo, blockEnhanced, uint32(7), make([]byte, 16))),
			"interface 7, but there are 1"},
		"unknown link": {ng(block(lo, blockInterface, uint16(105), uint16(0), uint32(0)),
			block(lo, blockSimple, uint32(0))), "link type 105"},
		"short interface": {ng(block(lo, blockInterface, uint32(1))),
			"interface description too short"},
		"short packet": {ng(iface, block(lo, blockEnhanced, make([]byte, 16))),
			"packet block too short"},
		"short old packet": {ng(iface, block(lo, blockPacketOld, make([]byte, 16))),
			"packet block too short"},
		"short simple": {ng(iface, block(lo, blockSimple)), "simple packet block too short"},
		"packet too long": {ng(iface,
			block(lo, blockEnhanced, make([]byte, 12), uint32(5), uint32(5), []byte("abcd"))),
			"space for 4"},
		"option too long": {ng(iface,
			block(lo, blockEnhanced, make([]byte, 12), uint32(0), uint32(0), uint16(1),
				uint16(99))), "beyond the block"},
		"resolution": {ng(block(lo, blockInterface, uint16(1), uint16(0), uint32(0),
			option(lo, optTSResol, uint8(20)))), "too fine"},
		"interface name": {ng(block(lo, blockInterface, uint16(1), uint16(0), uint32(0),
			option(lo, optName, make([]byte, 257)))), "name of 257 bytes"},
		"resolution 2": {ng(block(lo, blockInterface, uint16(1), uint16(0), uint32(0),
			option(lo, optTSResol, uint8(0x80|64)))), "too fine"},
	} {
		_, err := readAll(tc.file)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, tc.want)
		}
	}
}

func TestErrorIsKept(t *testing.T) {
	file := words(binary.LittleEndian, uint32(magicMicro), uint16(2), uint16(4), uint64(0),
		uint32(0), uint32(1), uint64(0), uint32(1<<30), uint32(0))
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	_, first := r.Next()
	_, second := r.Next()
	if first == nil || first != second {
		t.Errorf("%v, then %v", first, second)
	}
}

func TestTooManyInterfaces(t *testing.T) {
	lo := binary.LittleEndian
	file := append(section(lo), bytes.Repeat(block(lo, blockInterface, uint16(1), uint16(0),
		uint32(0)), MaxInterfaces+1)...)
	if _, err := readAll(file); err == nil ||
		!strings.Contains(err.Error(), "more than 65536 interfaces") {
		t.Error(err)
	}
}

func TestTimesFarAway(t *testing.T) {
	lo := binary.LittleEndian
	file := append(section(lo), block(lo, blockInterface, uint16(1), uint16(0), uint32(0),
		option(lo, optTSResol, uint8(0)), option(lo, optTSOffset, int64(-1<<63)))...)
	file = append(file, block(lo, blockEnhanced, uint32(0), uint32(1<<32-1), uint32(1<<32-1),
		uint32(0), uint32(0))...)
	recs, err := readAll(file)
	if err != nil || len(recs) != 1 || recs[0].Time.Year() != 1970 {
		t.Errorf("%+v, %v", recs, err)
	}
}
