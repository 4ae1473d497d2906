package packet_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

var be = binary.BigEndian

func p4(s string) netip.Addr { return netip.MustParseAddr(s) }

func mustBuild(t testing.TB, layers ...build.Layer) []byte {
	t.Helper()
	b, err := build.Packet(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustParse(t testing.TB, s string) (packet.Packet, []byte) {
	t.Helper()
	p, b, err := build.ParseText(s)
	if err != nil {
		t.Fatal(err)
	}
	return p, b
}

// optionBytes returns IPv4 options, with space for one address or timestamp each.
func optionBytes(set uint8) []byte {
	var o []byte
	for _, option := range []struct {
		bit   uint8
		bytes []byte
	}{
		{packet.OptSSRR, []byte{137, 7, 4, 0, 0, 0, 0}},
		{packet.OptLSRR, []byte{131, 7, 4, 0, 0, 0, 0}},
		{packet.OptRR, []byte{7, 7, 4, 0, 0, 0, 0}},
		{packet.OptTS, []byte{68, 8, 5, 0, 0, 0, 0, 0}},
		{packet.OptRouterAlert, []byte{148, 4, 0, 0}},
	} {
		if set&option.bit != 0 {
			o = append(o, option.bytes...)
		}
	}
	return o
}
