package kernel

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// piece is a fragment of a datagram with identification 77, and where it comes in.
type piece struct {
	at       crossing
	src, dst netip.Addr
	layer    build.Layer  // of a first fragment
	proto    packet.Proto // of a later one
	id       uint16
}

// put has a fragment come in, and returns what became of it and between whom it then goes.
func (f *frames) put(c piece) (code int32, src, dst netip.Addr) {
	f.t.Helper()
	ip := build.IPv4{Src: c.src, Dst: c.dst, TTL: 64, ID: c.id, Flags: packet.FragMF}
	layers := []build.Layer{ip, c.layer, build.Data(make([]byte, 24))}
	if c.layer == nil {
		ip.Flags, ip.FragOff, ip.Proto = 0, 32, c.proto
		layers = []build.Layer{ip, build.Data(make([]byte, 24))}
	}
	b := enginetest.Packet(f.t, layers...)
	frame := slices.Concat(c.at.mac[:], []byte{2, 0, 0, 0, 0, 9, 8, 0}, b)
	context := make([]byte, 192) // struct __sk_buff
	binary.NativeEndian.PutUint32(context[40:], c.at.index)
	out := make([]byte, len(frame)+64)
	f.must(f.host.Do(func() error {
		o := &ebpf.RunOptions{Data: frame, DataOut: out, Context: context}
		r, err := f.engine.objects.WeirIn.Run(o)
		code, out = int32(r), o.DataOut
		return err
	}))
	return code, netip.AddrFrom4([4]byte(out[26:30])), netip.AddrFrom4([4]byte(out[30:34]))
}

// TestFragmentsOfOtherHosts: a later fragment is translated as the first of its own datagram, and
// by no other: not of another sender, protocol or identification, nor where it comes in elsewhere.
// The rules let every fragment pass, also without a first, so that nothing but the translation
// holds it.
func TestFragmentsOfOtherHosts(t *testing.T) {
	t.Parallel()
	f := newFrames(t, "add allow ip from any to any frag\nadd allow ip from any to any\n")
	f.masquerade(2000, 3000)
	f.publish(8080, 80)
	a, b := f.podLinks[podA], f.podLinks[podB]
	other := crossing{index: loopback}
	outsider := netip.MustParseAddr("192.0.2.9")
	udp := build.UDP{SrcPort: 4000, DstPort: 53, Len: 56}
	in := build.UDP{SrcPort: 4000, DstPort: 8080, Len: 56}
	const id, tcp, datagram = 77, packet.ProtoTCP, packet.ProtoUDP

	// Out, behind the host's address.
	if code, src, _ := f.put(piece{at: a, src: podA, dst: outsideAddr, layer: udp,
		id: id}); code != redirected || src != hostAddr {
		t.Fatalf("the first of a pod: %d from %s", code, src)
	}
	for name, c := range map[string]piece{
		"of another pod":      {at: b, src: podB, dst: outsideAddr, proto: datagram, id: id},
		"of another protocol": {at: a, src: podA, dst: outsideAddr, proto: tcp, id: id},
		"of another datagram": {at: a, src: podA, dst: outsideAddr, proto: datagram, id: id + 1},
		"to another host":     {at: a, src: podA, dst: outsider, proto: datagram, id: id},
		"from the wrong pod":  {at: b, src: podA, dst: outsideAddr, proto: datagram, id: id},
		"from the NIC":        {at: f.nic, src: podA, dst: outsideAddr, proto: datagram, id: id},
		"from the host's own": {at: other, src: podA, dst: outsideAddr, proto: datagram, id: id},
		"back, with its answer": {at: f.nic, src: outsideAddr, dst: hostAddr, proto: datagram,
			id: id},
	} {
		if code, src, dst := f.put(c); src != c.src || dst != c.dst {
			t.Errorf("%s: %d, goes from %s to %s", name, code, src, dst)
		}
	}
	if code, src, _ := f.put(piece{at: a, src: podA, dst: outsideAddr, proto: datagram,
		id: id}); code != redirected || src != hostAddr {
		t.Errorf("its own: %d from %s", code, src)
	}

	// In, to a published port.
	if code, _, dst := f.put(piece{at: f.nic, src: outsideAddr, dst: hostAddr, layer: in,
		id: id}); code != redirected || dst != podA {
		t.Fatalf("the first of a client: %d to %s", code, dst)
	}
	for name, c := range map[string]piece{
		"of another client":   {at: f.nic, src: outsider, dst: hostAddr, proto: datagram, id: id},
		"of another protocol": {at: f.nic, src: outsideAddr, dst: hostAddr, proto: tcp, id: id},
		"of another datagram": {at: f.nic, src: outsideAddr, dst: hostAddr, proto: datagram,
			id: id + 1},
		"by another NIC": {at: other, src: outsideAddr, dst: hostAddr, proto: datagram, id: id},
		"from a pod":     {at: b, src: outsideAddr, dst: hostAddr, proto: datagram, id: id},
	} {
		if code, src, dst := f.put(c); src != c.src || dst != c.dst {
			t.Errorf("in, %s: %d, goes from %s to %s", name, code, src, dst)
		}
	}
	if code, _, dst := f.put(piece{at: f.nic, src: outsideAddr, dst: hostAddr, proto: datagram,
		id: id}); code != redirected || dst != podA {
		t.Errorf("in, its own: %d to %s", code, dst)
	}
}
