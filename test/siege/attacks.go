package main

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

var host = netip.MustParseAddr(hostAddr)

// spoofed returns a source address that no host has: somewhere in 11.0.0.0/8.
func spoofed(r *rand.Rand) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 11<<24|r.Uint32N(1<<24))
	return netip.AddrFrom4(b)
}

func port(r *rand.Rand) uint16 { return uint16(1024 + r.IntN(60000)) }

// mustBuild is build.Packet of layers that are right by construction.
func mustBuild(layers ...build.Layer) []byte {
	b, err := build.Packet(layers...)
	if err != nil {
		panic(err)
	}
	return b
}

// udpTo asks a UDP port of the host with sources of a kind.
func udpTo(dst uint16, source func(*rand.Rand) netip.Addr) func(*testbed, []*keptConn) generator {
	return func(*testbed, []*keptConn) generator {
		return func(r *rand.Rand) []byte {
			return mustBuild(build.IPv4{Src: source(r), Dst: host},
				build.UDP{SrcPort: port(r), DstPort: dst},
				build.Data("question"))
		}
	}
}

func synTo(dst uint16, source func(*rand.Rand) netip.Addr) func(*testbed, []*keptConn) generator {
	return func(*testbed, []*keptConn) generator {
		return func(r *rand.Rand) []byte {
			return mustBuild(build.IPv4{Src: source(r), Dst: host},
				build.TCP{SrcPort: port(r), DstPort: dst, Seq: r.Uint32(), Flags: packet.FlagSYN,
					Window: 64240})
		}
	}
}

func only(addr string) func(*rand.Rand) netip.Addr {
	a := netip.MustParseAddr(addr)
	return func(*rand.Rand) netip.Addr { return a }
}

// sctpInit begins SCTP associations.
func sctpInit(*testbed, []*keptConn) generator {
	return func(r *rand.Rand) []byte {
		chunk := append([]byte{1, 0, 0, 20}, make([]byte, 16)...)
		binary.BigEndian.PutUint32(chunk[4:], 1+r.Uint32N(1<<31))
		binary.BigEndian.PutUint32(chunk[8:], 65536)
		chunk[13], chunk[15] = 10, 10
		return mustBuild(build.IPv4{Src: spoofed(r), Dst: host},
			build.SCTP{SrcPort: port(r), DstPort: 9}, build.Data(chunk))
	}
}

// icmpErrors sends ICMP errors of every kind. Half of them quote a packet that was never sent, and
// half a segment of a connection that is open, with a number of chance.
func icmpErrors(w *testbed, kept []*keptConn) generator {
	tuples := wireTuples(w, kept)
	kinds := []build.ICMP{{Type: 3, Code: 0}, {Type: 3, Code: 1}, {Type: 3, Code: 2},
		{Type: 3, Code: 3},
		{Type: 3, Code: 4, Rest: 68}, {Type: 3, Code: 13}, {Type: 4},
		{Type: 5, Code: 1, Rest: 0x0a420002},
		{Type: 11}, {Type: 11, Code: 1}, {Type: 12}}
	return func(r *rand.Rand) []byte {
		t := tuple{host, spoofed(r), 80, port(r)}
		if r.IntN(2) == 0 && len(tuples) > 0 {
			t = tuples[r.IntN(len(tuples))]
			t.src, t.dst, t.srcPort, t.dstPort = t.dst, t.src, t.dstPort, t.srcPort
		}
		quote := mustBuild(build.IPv4{Src: t.src, Dst: t.dst},
			build.TCP{SrcPort: t.srcPort, DstPort: t.dstPort, Seq: r.Uint32(),
				Flags: packet.FlagACK, Window: 1000})
		return mustBuild(build.IPv4{Src: spoofed(r), Dst: host}, kinds[r.IntN(len(kinds))],
			build.Data(quote[:28]))
	}
}

// tuple is a direction of a connection as seen on the wire outside.
type tuple struct {
	src, dst         netip.Addr
	srcPort, dstPort uint16
}

// wireTuples are the directions towards the host of all open connections, as they are outside.
func wireTuples(w *testbed, kept []*keptConn) []tuple {
	var all []tuple
	for _, c := range kept {
		local, err := netip.ParseAddrPort(c.local.String())
		if err != nil {
			continue
		}
		remote := netip.MustParseAddrPort(c.work.addr)
		if remote.Addr() == host { // from outside
			all = append(all, tuple{local.Addr(), host, local.Port(), remote.Port()})
			continue
		}
		if seen := w.services.peer(c.id); seen.IsValid() { // to outside, perhaps masqueraded
			all = append(all, tuple{remote.Addr(), seen.Addr(), remote.Port(), seen.Port()})
		}
	}
	return all
}

// blind sends segments with the right addresses and ports and numbers of chance into all open
// connections: RST, SYN, FIN, data and bare ACK.
func blind(w *testbed, kept []*keptConn) generator {
	tuples := wireTuples(w, kept)
	flags := []uint8{packet.FlagRST, packet.FlagRST | packet.FlagACK, packet.FlagSYN,
		packet.FlagSYN | packet.FlagACK,
		packet.FlagFIN | packet.FlagACK, packet.FlagACK | packet.FlagPSH, packet.FlagACK}
	return func(r *rand.Rand) []byte {
		t := tuples[r.IntN(len(tuples))]
		f := flags[r.IntN(len(flags))]
		layers := []build.Layer{build.IPv4{Src: t.src, Dst: t.dst},
			build.TCP{SrcPort: t.srcPort, DstPort: t.dstPort, Seq: r.Uint32(), Ack: r.Uint32(),
				Flags: f, Window: 64240}}
		if f&packet.FlagPSH != 0 {
			layers = append(layers, build.Data("a guess"))
		}
		return mustBuild(layers...)
	}
}
