package udp

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// everything is control data with all that the kernel may add at once.
func everything() []byte {
	b := make([]byte, 0, readControl)
	var data []byte
	b, data = appendControl(b, unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, 2*wordSize)
	data[0], data[wordSize] = 7, 9
	b, data = appendControl(b, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 4)
	data[0] = 5
	b, data = appendControl(b, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
	binary.NativeEndian.PutUint32(data[16:], 3)
	data[15] = 1
	b, data = appendControl(b, unix.IPPROTO_IP, unix.IP_TOS, 1)
	data[0] = 0xfe
	b, data = appendControl(b, unix.SOL_UDP, unix.UDP_GRO, 4)
	binary.NativeEndian.PutUint32(data, 1400)
	return b
}

func TestParseControl(t *testing.T) {
	var m Message
	r := parseControl(everything(), &m)
	if m.Segment != 1400 || m.ECN != ECT0 || m.IfIndex != 3 || m.Local != netip.IPv6Loopback() ||
		!r.hasDrops || r.drops != 5 ||
		m.Time.Nanosecond() != 9 {
		t.Errorf("got %+v and %+v", m, r)
	}
}

// TestBuildControl lets the parser of x/sys read what we build.
func TestBuildControl(t *testing.T) {
	m := Message{Local: netip.MustParseAddr("fe80::1"), IfIndex: 4, ECN: CE}
	b := buildControl(make([]byte, 0, writeControl), &m, 1200, false)
	list, err := unix.ParseSocketControlMessage(b)
	if err != nil || len(list) != 3 {
		t.Fatalf("%d messages: %v", len(list), err)
	}
	if h := list[0]; h.Header.Level != unix.SOL_UDP || h.Header.Type != unix.UDP_SEGMENT ||
		binary.NativeEndian.Uint16(h.Data) != 1200 {
		t.Errorf("segment size: %+v", h)
	}
	var got Message
	parseControl(b, &got)
	if got.Local != m.Local || got.IfIndex != 4 || got.ECN != CE {
		t.Errorf("round trip gives %+v", got)
	}
	m.Local = netip.MustParseAddr("::ffff:10.0.0.1")
	b = buildControl(b[:0], &m, 0, true)
	list, err = unix.ParseSocketControlMessage(b)
	if err != nil || len(list) != 2 || list[0].Header.Type != unix.IP_PKTINFO ||
		!bytes.Equal(list[0].Data[4:8], []byte{10, 0, 0, 1}) {
		t.Errorf("IPv4: %+v, %v", list, err)
	}
}

// FuzzControl compares the walk with the parser of x/sys, which copies and allocates, on chains
// that the latter accepts, and looks for crashes and endless loops on the others.
func FuzzControl(f *testing.F) {
	f.Add(everything())
	f.Add(everything()[:50])
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Add(append([]byte{16, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 20)...))
	// one for all: listing the host's interfaces each time would take most of the time
	var z zones
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Message
		parseControl(b, &m)
		parseError(b, &z)
		list, err := unix.ParseSocketControlMessage(b)
		if err != nil {
			return
		}
		rest := b
		for i := range list {
			level, typ, data, next, ok := nextControl(rest)
			if !ok || level != list[i].Header.Level || typ != list[i].Header.Type ||
				!bytes.Equal(data, list[i].Data) {
				t.Fatalf("message %d: %v %d %d %x, want %+v", i, ok, level, typ, data, list[i])
			}
			if len(next) >= len(rest) {
				t.Fatalf("message %d: no progress", i)
			}
			rest = next
		}
	})
}

// FuzzSegments compares Segments and a Reader's split with cutting by hand.
func FuzzSegments(f *testing.F) {
	f.Add([]byte("abcdefghij"), 3, 10)
	f.Add([]byte("abcdefghij"), 0, 10)
	f.Add([]byte(""), 5, 0)
	f.Add([]byte("abc"), -1, 99)
	f.Fuzz(func(t *testing.T, buf []byte, segment, n int) {
		if segment < 0 || n < 0 { // the kernel gives neither
			segment, n = 0, 0
		}
		m := Message{Buffers: [][]byte{buf}, N: n, Segment: segment, IfIndex: 7}
		whole := buf[:min(n, len(buf))]
		var want [][]byte
		for rest := whole; ; {
			k := len(rest)
			if segment > 0 {
				k = min(k, segment)
			}
			want = append(want, rest[:k])
			if rest = rest[k:]; len(rest) == 0 {
				break
			}
		}
		i := 0
		for b := range m.Segments() {
			if i >= len(want) || !bytes.Equal(b, want[i]) {
				t.Fatalf("segment %d is %q", i, b)
			}
			i++
		}
		var r Reader
		r.grow(1)
		if k := r.split(&m, 0); i != len(want) || k != i {
			t.Fatalf("%d segments, split gives %d, want %d", i, k, len(want))
		}
		for i := range want {
			if d := &r.out[i]; !bytes.Equal(d.Payload(), want[i]) || d.Segment != 0 ||
				d.IfIndex != 7 {
				t.Fatalf("split gives %+v for %d", d, i)
			}
		}
	})
}

func TestKernels(t *testing.T) {
	for s, want := range map[string]release{
		"6.1.0-18-amd64": {6, 1, 0}, "6.18.44-fc-v657": {6, 18, 44}, "5.4": {5, 4, 0},
		"7.1.5+": {7, 1, 5},
		"":       {}, "x": {}, "6": {6, 0, 0}, "6..3": {6, 0, 0},
		"99999999999999999999.1": {9999999, 0, 0},
	} {
		if got := parseRelease(s); got != want {
			t.Errorf("%q is %v, want %v", s, got, want)
		}
	}
	for s, bad := range map[string]bool{"4.18.0": true, "5.0.0": false, "6.1.0": false,
		"7.0.0": true, "7.1.4": true, "7.1.5": false} {
		if got := gsoBug(parseRelease(s)) != ""; got != bad {
			t.Errorf("kernel %s is held for bad: %v", s, got)
		}
	}
	if maxSegments(release{6, 8, 9}) != 63 || maxSegments(release{6, 9, 0}) != 127 {
		t.Error("segments in a GSO packet")
	}
}

func TestRoutes(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	var r routes
	if r.max(a) != MaxPayload {
		t.Error("an unknown route is limited")
	}
	r.refuse(a, 1500, false)
	r.refuse(b, 1500, true)
	if r.max(a) != 1499 || r.max(b) != 0 {
		t.Errorf("limits are %d and %d", r.max(a), r.max(b))
	}
	r.refuse(a, 1200, false)
	if r.max(a) != 0 {
		t.Error("a small segment was refused, but the route is still in use")
	}
	r.forget(a)
	if r.max(a) != MaxPayload || r.max(b) != 0 {
		t.Error("forget")
	}
	r.m[b] = refusal{0, r.m[b].until.Add(-2 * routeLife)}
	if r.max(b) != MaxPayload {
		t.Error("a refusal does not end")
	}
	for i := range routeLimit + 10 {
		r.refuse(netip.AddrFrom4([4]byte{1, 0, byte(i >> 8), byte(i)}), 100, true)
	}
	if len(r.m) > routeLimit {
		t.Errorf("%d routes kept", len(r.m))
	}
}
