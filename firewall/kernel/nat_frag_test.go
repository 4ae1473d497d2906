package kernel

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

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

// TestFragmentsOfReusedIDs: identifications wrap around within the life of a record. The fragments
// of a datagram to the host itself follow none of an earlier one to a published port.
func TestFragmentsOfReusedIDs(t *testing.T) {
	t.Parallel()
	f := newFrames(t, "add allow ip from any to any frag\nadd allow ip from any to any\n")
	f.publish(8080, 80)
	first := piece{at: f.nic, src: outsideAddr, dst: hostAddr, id: 77}
	later := first
	later.proto = packet.ProtoUDP
	for _, c := range []struct {
		port uint16
		to   netip.Addr
	}{{8080, podA}, {9999, hostAddr}, {8080, podA}} {
		first.layer = build.UDP{SrcPort: 4000, DstPort: c.port, Len: 56}
		for i, x := range []piece{first, later} {
			if _, _, dst := f.put(x); dst != c.to {
				t.Errorf("port %d, fragment %d goes to %s, not %s", c.port, i, dst, c.to)
			}
		}
	}
}

// TestFragmentsBehindOptions: options of IPv6 behind the fragment header are in the first fragment
// alone, and each fragment may announce another protocol (RFC 8200 4.5). The later ones are
// translated as the first all the same, but not those of another datagram.
func TestFragmentsBehindOptions(t *testing.T) {
	t.Parallel()
	f := newFrames(t, "add allow ip from any to any frag\nadd allow ip from any to any\n")
	f.masquerade(2000, 3000)
	f.publish(8080, 80)
	host, outside := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	f.must(f.host.Command("ping", "-c", "1", "-W", "60", outside.String()).Run())
	pod := f.a.endpoint.Addrs[1]
	put := func(at crossing, src, dst netip.Addr, above ...build.Layer) (code int32, s,
		d netip.Addr) {
		b := enginetest.Packet(t, slices.Concat(
			[]build.Layer{build.IPv6{Src: src, Dst: dst, HopLimit: 64}}, above,
			[]build.Layer{build.Data(make([]byte, 24))})...)
		code, out := f.run(f.engine.objects.WeirIn, 0, at.index,
			slices.Concat(at.mac[:], []byte{2, 0, 0, 0, 0, 9, 0x86, 0xdd}, b))
		return code, netip.AddrFrom16([16]byte(out[22:38])), netip.AddrFrom16([16]byte(out[38:54]))
	}
	for _, c := range []struct {
		what                     string
		at                       crossing
		src, dst, newSrc, newDst netip.Addr
		port                     uint16
	}{
		{"out", f.podLinks[podA], pod, outside, host, outside, 53},
		{"in", f.nic, outside, host, outside, pod, 8080},
	} {
		code, src, dst := put(c.at, c.src, c.dst, build.Fragment{ID: 77, More: true},
			build.Destination{}, build.UDP{SrcPort: 4000, DstPort: c.port, Len: 96})
		if code != redirected || src != c.newSrc || dst != c.newDst {
			t.Errorf("%s, the first: %d from %s to %s", c.what, code, src, dst)
		}
		for _, next := range []uint8{packet.ProtoDestination, packet.ProtoUDP} {
			later := build.Fragment{ID: 77, Off: 40, Next: next}
			code, src, dst = put(c.at, c.src, c.dst, later)
			if code != redirected || src != c.newSrc || dst != c.newDst {
				t.Errorf("%s, with protocol %d: %d from %s to %s", c.what, next, code, src, dst)
			}
			later.ID++
			if _, src, dst = put(c.at, c.src, c.dst, later); src != c.src || dst != c.dst {
				t.Errorf("%s, of another datagram: from %s to %s", c.what, src, dst)
			}
		}
	}
}

// TestFragmentsToTheHost: fragments that a pod sends to the host go up the stack, but for the
// answer to a call of the host to its own port. That goes into the loopback, where rules of
// netfilter usually let everything pass.
func TestFragmentsToTheHost(t *testing.T) {
	t.Parallel()
	f := newFrames(t, "add allow ip from any to any frag\nadd allow ip from any to any\n")
	f.publish(8080, 80)
	put := func(what string, id uint16, layer build.Layer, code int32, src netip.Addr) {
		t.Helper()
		c, s, _ := f.put(piece{at: f.podLinks[podA], src: podA, dst: hostAddr, layer: layer,
			proto: packet.ProtoUDP, id: id})
		if c != code || s != src {
			t.Errorf("%s: %d from %s, not %d from %s", what, c, s, code, src)
		}
	}
	question := build.UDP{SrcPort: 80, DstPort: 53, Len: 56}
	answer := build.UDP{SrcPort: 80, DstPort: 5000, Len: 56}
	put("the first", 77, question, wentUp, podA)
	put("a later one", 77, nil, wentUp, podA)

	_, call := f.frame(end(hostAddr, 5000), end(hostAddr, 8080), build.UDP{}, 8)
	if code, _ := f.run(f.engine.objects.WeirLocal, loopback, loopback, call); code != redirected {
		t.Fatalf("the host's call: %d", code)
	}
	put("the first of an answer", 78, answer, redirected, hostAddr)
	put("a later one of an answer", 78, nil, redirected, hostAddr)
	put("a later one without a first", 79, nil, wentUp, podA)
	put("the first, with the id of an answer", 78, question, wentUp, podA)
	put("a later one, with the id of an answer", 78, nil, wentUp, podA)
}

// TestLargeDatagramsOfPodsToTheHost does so with the stacks of Linux: the host receives them by the
// pod's interface.
func TestLargeDatagramsOfPodsToTheHost(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	v.publish(8080, 80)
	for _, to := range []string{"192.0.2.1:81", "[2001:db8::1]:81"} {
		var server net.PacketConn
		v.must(v.host.Do(func() (err error) {
			server, err = net.ListenPacket("udp", to)
			return err
		}))
		defer server.Close()
		v.must(server.SetReadDeadline(time.Now().Add(testTimeout)))
		four, six := ipv4.NewPacketConn(server), ipv6.NewPacketConn(server)
		if to[0] == '[' {
			v.must(six.SetControlMessage(ipv6.FlagInterface, true))
		} else {
			v.must(four.SetControlMessage(ipv4.FlagInterface, true))
		}
		client, err := v.a.DialContext(context.Background(), "udp", to)
		v.must(err)
		defer client.Close()
		_, err = client.Write(make([]byte, 4000))
		v.must(err)
		var n, index int
		if b := make([]byte, 5000); to[0] == '[' {
			var m *ipv6.ControlMessage
			n, m, _, err = six.ReadFrom(b)
			v.must(err)
			index = m.IfIndex
		} else {
			var m *ipv4.ControlMessage
			n, m, _, err = four.ReadFrom(b)
			v.must(err)
			index = m.IfIndex
		}
		if n != 4000 || index != int(v.a.endpoint.Index) {
			t.Errorf("%s: %d bytes by interface %d, not by %d", to, n, index, v.a.endpoint.Index)
		}
	}
}
