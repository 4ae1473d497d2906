package offline

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/pcap"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// v4 and v6 are the IP headers of the tests.
var (
	v4 = build.IPv4{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2")}
	v6 = build.IPv6{Src: netip.MustParseAddr("2001:db8::1"),
		Dst: netip.MustParseAddr("2001:db8::2")}
)

// decodeCut decodes the first bytes of a frame as replay does.
func decodeCut(link packet.Link, frame []byte, captured int) (packet.Packet, []byte, string) {
	r := pcap.Record{Data: frame[:captured], Len: len(frame), Link: link}
	var p packet.Packet
	data := whole(&r)
	f := p.DecodeFrame(link, data)
	return p, data, cutIn(link, data, captured, &p, f)
}

// read is what rules and states read of a packet.
type read struct {
	p, inner packet.Packet
	quotes   bool
	scale    uint8
	segment  flow.Segment
}

func readOf(p packet.Packet, ip []byte) (r read) {
	r.p, r.segment = p, flow.SegmentOf(&p, ip)
	r.inner, r.quotes = p.Inner(ip)
	if p.TCPFlags&packet.FlagSYN != 0 {
		r.scale, _ = p.WindowScale(ip)
	}
	return r
}

// TestCut: a frame that is cut anywhere is either read as the whole one or said to be cut, and with
// its headers alone it is read.
func TestCut(t *testing.T) {
	t.Parallel()
	payload := build.Data(bytes.Repeat([]byte{0xa5}, 64))
	hop := build.HopByHop{Options: build.RouterAlert()}
	first := build.Fragment{ID: 7, More: true}
	later := build.Fragment{ID: 7, Off: 64}
	unreach := build.ICMP{Type: 3}
	ack := build.TCP{SrcPort: 1, DstPort: 2, Flags: packet.FlagACK}
	udp, sctp := build.UDP{SrcPort: 1, DstPort: 2}, build.SCTP{SrcPort: 1, DstPort: 2}
	initial, initialAck := build.Data{1, 0, 0, 8, 1, 2, 3, 4}, build.Data{2, 0, 0, 8, 1, 2, 3, 4}
	syn := build.TCP{SrcPort: 1, DstPort: 2, Flags: packet.FlagSYN,
		Options: []byte{2, 4, 5, 180, 1, 3, 3, 7}}
	for name, tc := range map[string]struct {
		layers  []build.Layer
		headers int // bytes that have to be there
	}{
		"tcp4":     {[]build.Layer{v4, ack, payload}, 40},
		"syn":      {[]build.Layer{v4, syn, payload}, 48},
		"udp6":     {[]build.Layer{v6, udp, payload}, 48},
		"sctp":     {[]build.Layer{v4, sctp, payload}, 36},
		"bare":     {[]build.Layer{v4, sctp, build.Data{1, 0}}, 32},
		"init":     {[]build.Layer{v4, sctp, initial, payload}, 40},
		"init ack": {[]build.Layer{v6, sctp, initialAck, payload}, 60},
		"ping":     {[]build.Layer{v4, build.ICMP{Type: 8, Rest: 0x10001}, payload}, 28},
		"gre":      {[]build.Layer{v4, build.Upper(47), payload}, 20},
		"hop":      {[]build.Layer{v6, hop, syn, payload}, 76},
		"dst":      {[]build.Layer{v6, build.Destination{}, udp, payload}, 56},
		"later":    {[]build.Layer{v6, later, build.Upper(17), payload}, 48},
		"first":    {[]build.Layer{v6, first, udp, payload}, 56},
		"quote":    {[]build.Layer{v4, unreach, v4, udp, payload}, 56},
		"vlan":     {[]build.Layer{build.Ethernet{}, build.VLAN{}, v4, udp, payload}, 46},
		"ethernet": {[]build.Layer{build.Ethernet{}, v6, syn, payload}, 82},
	} {
		frame, err := build.Packet(tc.layers...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		link := packet.LinkRaw
		if _, framed := tc.layers[0].(build.Ethernet); framed {
			link = packet.LinkEthernet
		}
		whole, data, header := decodeCut(link, frame, len(frame))
		if whole.Version == 0 || whole.Reason != packet.ReasonNone || header != "" {
			t.Fatalf("%s: %v, %q", name, whole, header)
		}
		l3, _ := packet.ParseFrame(link, frame)
		want := readOf(whole, data[l3.L3:])
		for captured := range frame {
			p, data, header := decodeCut(link, frame, captured)
			if (header == "") != (captured >= tc.headers) {
				t.Errorf("%s, %d bytes: cut in %q, want %d", name, captured, header, tc.headers)
			}
			if header == "" && readOf(p, data[l3.L3:]) != want {
				t.Errorf("%s, %d bytes: %v, want %v", name, captured, p, whole)
			}
		}
	}
}

// TestLengthOfSegments: packets that the network card cuts into segments say no length.
func TestLengthOfSegments(t *testing.T) {
	t.Parallel()
	tcp := build.TCP{SrcPort: 1, DstPort: 2, Flags: packet.FlagACK}
	payload := func(n int) build.Data { return make([]byte, n) }
	for name, tc := range map[string]struct {
		layers []build.Layer
		jumbo  bool
		longer int // than the packet made of layers
		want   uint32
	}{
		"tso4": {[]build.Layer{v4, tcp, payload(9000)}, false, 0, 9040},
		"big4": {[]build.Layer{v4, tcp, payload(65000)}, false, 30000, 65535},
		"tso6": {[]build.Layer{v6, tcp, payload(9000)}, false, 0, 9060},
		"big6": {[]build.Layer{v6, tcp, payload(65000)}, true, 30000, 65535 + 40},
	} {
		ip, err := build.Packet(tc.layers...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ip = append(ip, make([]byte, tc.longer)...)
		at := 2
		if ip[0]>>4 == 6 {
			at = 4
		}
		ip[at], ip[at+1] = 0, 0
		if tc.jumbo {
			ip[6] = byte(packet.ProtoHopByHop)
			option := binary.BigEndian.AppendUint32([]byte{6, 0, 0xc2, 4}, uint32(len(ip)-32))
			ip = append(append(bytes.Clone(ip[:40]), option...), ip[40:]...)
		}
		before := bytes.Clone(ip)
		var p packet.Packet
		p.DecodeFrame(packet.LinkRaw, withLength(packet.LinkRaw, ip))
		if p.Len() != tc.want || !strings.Contains(p.String(), "tcp ") {
			t.Errorf("%s: %d bytes, %v", name, p.Len(), p)
		}
		if !bytes.Equal(before, ip) {
			t.Errorf("%s: the record has changed", name)
		}
	}
}
