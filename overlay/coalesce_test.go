package overlay

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tailscale/wireguard-go/tun"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/packet"
)

// gsoPacket is what the kernel hands to a TUN device: headers for all of the payload, and the sum
// of the pseudo header where the checksum belongs.
func gsoPacket(v6 bool, options, payload int, seq uint32, flags byte) (p []byte,
	o tun.GSOOptions) {
	p, ip := gsoIP(v6, protocolTCP, 20+options+payload)
	o.GSOType = tun.GSOTCPv4
	if v6 {
		o.GSOType = tun.GSOTCPv6
	}
	tcp := p[ip:]
	binary.BigEndian.PutUint16(tcp, 5000)
	binary.BigEndian.PutUint16(tcp[2:], 80)
	binary.BigEndian.PutUint32(tcp[4:], seq)
	tcp[12], tcp[13], tcp[15] = byte(20+options)/4<<4, flags, 9
	for i := range options {
		tcp[20+i] = 1
	}
	o.HdrLen, o.CsumStart, o.CsumOffset, o.GSOSize, o.NeedsCsum = uint16(ip+20+options), uint16(ip),
		16, 1000, true
	fill(tcp[20+options:])
	return p, o
}

// gsoDatagram is the same for UDP.
func gsoDatagram(v6 bool, payload int) (p []byte, o tun.GSOOptions) {
	p, ip := gsoIP(v6, protocolUDP, 8+payload)
	udp := p[ip:]
	binary.BigEndian.PutUint16(udp, 6000)
	binary.BigEndian.PutUint16(udp[2:], 443)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	fill(udp[8:])
	return p, tun.GSOOptions{GSOType: tun.GSOUDPL4, HdrLen: uint16(ip + 8), CsumStart: uint16(ip),
		CsumOffset: 6, GSOSize: 1000, NeedsCsum: true}
}

func gsoIP(v6 bool, protocol byte, size int) (p []byte, ip int) {
	if v6 {
		p = make([]byte, 40+size)
		p[0], p[6], p[7] = 0x60, protocol, 64
		binary.BigEndian.PutUint16(p[4:], uint16(size))
		p[8], p[23], p[24], p[39] = 0xfd, 1, 0xfd, 2
		return p, 40
	}
	p = make([]byte, 20+size)
	p[0], p[6], p[8], p[9] = 0x45, 0x40, 64, protocol
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	copy(p[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	return p, 20
}

func fill(b []byte) {
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
}

// cutAll is what the other node sends.
func cutAll(t testing.TB, p []byte, o tun.GSOOptions) (list [][]byte) {
	slab, packets := make([]byte, 1<<18), make([]tun.ReadPacket, 200)
	n, err := tun.GSOSplit(p, o, slab, packets, spacing)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range packets[:n] {
		list = append(list, slab[r.Offset:r.Offset+r.Size])
	}
	return list
}

func newCoalescer() *coalescer {
	m := new(coalescer)
	m.reset()
	return m
}

func (m *coalescer) addAll(list [][]byte) {
	for _, p := range list {
		m.add(p, segmentOf(p))
	}
}

// written is what the kernel is given for unit k, and what it makes of that.
func (m *coalescer) written(t testing.TB, k int) [][]byte {
	t.Helper()
	u := &m.units[k]
	p := m.packet(k)
	if u.count == 1 {
		return [][]byte{p}
	}
	head := u.finish(m.slab)
	whole := bytes.Clone(head[vnetSize:])
	for i := u.first; i >= 0; i = m.link[i] {
		whole = append(whole, m.in[i][u.header:]...)
	}
	if len(whole) != u.size {
		t.Fatalf("a unit of %d bytes has %d", u.size, len(whole))
	}
	if u.ip == 20 && tun.Checksum(whole[:20], 0) != 0xffff {
		t.Fatal("the checksum of the common IP header is wrong")
	}
	o, err := readVnet(head).options(whole)
	if err != nil {
		t.Fatal(err)
	}
	if s := segmentOf(whole); s.pseudo(whole,
		u.size-u.ip) != binary.BigEndian.Uint16(whole[u.ip+s.checksumAt():]) {
		t.Fatal("the sum of the pseudo header is wrong")
	}
	return cutAll(t, whole, o)
}

// TestCoalesce segments GSO packets and wants them coalesced again. What the filter sees has the
// fields of the whole, and what the kernel is given can be cut into the same packets.
func TestCoalesce(t *testing.T) {
	m := newCoalescer()
	for _, v6 := range []bool{false, true} {
		for _, options := range []int{0, 12, 40, -1} {
			for _, payload := range []int{1, 1000, 1001, 2000, 64000} {
				whole, o := gsoPacket(v6, max(options, 0), payload, 0xffffff00, tcpAck|tcpPush)
				if options < 0 {
					whole, o = gsoDatagram(v6, payload)
				}
				list := cutAll(t, bytes.Clone(whole), o)
				for range 3 { // the memory is used again
					m.reset()
					m.addAll(list)
				}
				if len(m.units) != 1 || int(m.units[0].count) != len(list) {
					t.Fatalf("%d bytes: %d units of %d packets", payload, len(m.units), len(list))
				}
				var want, got packet.Packet
				want.Decode(whole)
				got.Decode(m.packet(0))
				if want != got {
					t.Errorf("filtered as\n%+v, want\n%+v", got, want)
				}
				for i, p := range m.written(t, 0) {
					if !bytes.Equal(p, list[i]) {
						t.Fatalf("v6 %v, options %d, %d bytes: packet %d became\n%x, was\n%x", v6,
							options, payload, i, p[:60], list[i][:60])
					}
				}
			}
		}
	}
}

// TestCoalesceBreaks changes one thing about the second of three segments, which must then not be
// coalesced.
func TestCoalesceBreaks(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		ip := 20
		if v6 {
			ip = 40
		}
		for name, change := range map[string]func(p []byte) []byte{
			"tos": func(p []byte) []byte { p[1] ^= 0x10; return p },
			"ttl": func(p []byte) []byte {
				p[map[bool]int{false: 8, true: 7}[v6]]--
				return p
			},
			"source":       func(p []byte) []byte { p[15] ^= 1; return p },
			"destination":  func(p []byte) []byte { p[ip-1] ^= 1; return p },
			"source port":  func(p []byte) []byte { p[ip] ^= 1; return p },
			"dst port":     func(p []byte) []byte { p[ip+3] ^= 1; return p },
			"seq":          func(p []byte) []byte { p[ip+7] ^= 1; return p },
			"ack":          func(p []byte) []byte { p[ip+11] ^= 1; return p },
			"window":       func(p []byte) []byte { p[ip+15] ^= 1; return p },
			"urgent":       func(p []byte) []byte { p[ip+19] ^= 1; return p },
			"option":       func(p []byte) []byte { p[ip+20] ^= 3; return p },
			"flag FIN":     func(p []byte) []byte { p[ip+13] |= 1; return p },
			"flag SYN":     func(p []byte) []byte { p[ip+13] |= 2; return p },
			"flag URG":     func(p []byte) []byte { p[ip+13] |= 0x20; return p },
			"flag ECE":     func(p []byte) []byte { p[ip+13] |= 0x40; return p },
			"short offset": func(p []byte) []byte { p[ip+12] = 0x40; return p },
			"checksum":     func(p []byte) []byte { p[ip+16] ^= 1; return p },
			"payload":      func(p []byte) []byte { p[ip+100] ^= 1; return p },
			"cut off":      func(p []byte) []byte { return p[:len(p)-1] },
			"too short":    func(p []byte) []byte { return p[:ip+10] },
			"version":      func(p []byte) []byte { p[0] = 0x75; return p },
			"protocol": func(p []byte) []byte {
				p[map[bool]int{false: 9, true: 6}[v6]] = 17
				return p
			},
			"empty": func(p []byte) []byte { return nil },
		} {
			whole, o := gsoPacket(v6, 12, 3000, 1, tcpAck)
			list := cutAll(t, whole, o)
			before := bytes.Clone(list[0])
			list[1] = change(list[1])
			if s := segmentOf(list[1]); s.protocol != 0 && name != "checksum" && name != "payload" {
				list[1] = withChecksum(list[1], s)
			}
			m := newCoalescer()
			m.addAll(list)
			for k, u := range m.units {
				if u.first == 1 && u.count != 1 || u.first != 1 && u.last == 1 {
					t.Errorf("v6 %v: other %s: coalesced in unit %d of %d", v6, name, k,
						len(m.units))
				}
			}
			if len(m.units) < 2 || !bytes.Equal(list[0], before) {
				t.Errorf("%s: %d units, or the packet was written to", name, len(m.units))
			}
		}
	}
}

// TestEmptyDatagramKeepsItsPlace: a datagram without payload is not coalesced, and none of its flow
// gets ahead of it.
func TestEmptyDatagramKeepsItsPlace(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		whole, o := gsoDatagram(v6, 3000)
		list := cutAll(t, whole, o)
		empty, _ := gsoDatagram(v6, 0)
		list[1] = withChecksum(empty, segment{protocol: protocolUDP, ip: int(o.CsumStart)})
		m := newCoalescer()
		m.addAll(list)
		if len(m.units) != 3 {
			t.Fatalf("v6 %v: %d units", v6, len(m.units))
		}
		for k, want := range list {
			if got := m.written(t, k); len(got) != 1 || !bytes.Equal(got[0], want) {
				t.Errorf("v6 %v: unit %d is not the datagram that was sent next", v6, k)
			}
		}
	}
}

// TestFragmentKeepsItsPlace: datagrams behind a fragment between the same hosts do not get ahead of
// it; those of other hosts may.
func TestFragmentKeepsItsPlace(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, mine := range []bool{true, false} {
			whole, o := gsoDatagram(v6, 4000)
			list := cutAll(t, whole, o)
			fragment, _ := gsoIP(v6, protocolUDP, 200)
			if v6 {
				fragment[6] = 44 // a fragment header
			} else {
				fragment[7] = 100 // behind the first
			}
			if !mine {
				fragment[12]++
			}
			m := newCoalescer()
			m.addAll(slices.Insert(list, 2, fragment))
			var counts []int32
			for _, u := range m.units {
				counts = append(counts, u.count)
			}
			want := []int32{2, 1, 2}
			if !mine {
				want = []int32{4, 1}
			}
			if !slices.Equal(counts, want) {
				t.Errorf("v6 %v, of the same hosts %v: units of %v, want %v", v6, mine, counts,
					want)
			}
		}
	}
}

// withChecksum makes the checksum of a packet right.
func withChecksum(p []byte, s segment) []byte {
	at := s.ip + s.checksumAt()
	p[at], p[at+1] = 0, 0
	binary.BigEndian.PutUint16(p[at:], ^tun.Checksum(p[s.ip:], s.pseudo(p, len(p)-s.ip)))
	return p
}

// TestBadHead: a first packet with a wrong checksum stays alone; those behind it do not.
func TestBadHead(t *testing.T) {
	whole, o := gsoPacket(false, 12, 3000, 1, tcpAck)
	list := cutAll(t, whole, o)
	list[0][100] ^= 1
	m := newCoalescer()
	m.addAll(list)
	if len(m.units) != 2 || m.units[0].count != 1 || m.units[1].count != 2 {
		t.Errorf("%d units: %+v", len(m.units), m.units)
	}
}

// TestCoalesceFlows interleaves the segments of several GSO packets at random. Every packet is in
// one unit; what is written has each flow's packets in order and unchanged; segments of one super
// packet meet again.
func TestCoalesceFlows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	m := newCoalescer()
	for range 300 {
		m.reset()
		var flows [][][]byte
		for port := range 1 + rnd.IntN(openFlows) {
			whole, o := gsoPacket(rnd.IntN(2) == 0, 4*rnd.IntN(4), 1+rnd.IntN(20000),
				rnd.Uint32(), tcpAck|byte(rnd.IntN(2))*tcpPush)
			if rnd.IntN(3) == 0 {
				whole, o = gsoDatagram(rnd.IntN(2) == 0, 1+rnd.IntN(20000))
			}
			whole[int(o.CsumStart)+1] += byte(port)
			flows = append(flows, cutAll(t, whole, o))
		}
		want, total := map[string][][]byte{}, len(flows)
		for len(flows) > 0 {
			i := rnd.IntN(len(flows))
			p := flows[i][0]
			m.add(p, segmentOf(p))
			key := string(segmentOf(p).flow(p))
			want[key] = append(want[key], p)
			if flows[i] = flows[i][1:]; len(flows[i]) == 0 {
				flows = append(flows[:i], flows[i+1:]...)
			}
		}
		if len(m.units) != total {
			t.Fatalf("%d units of %d GSO packets", len(m.units), total)
		}
		for k := range m.units {
			for _, p := range m.written(t, k) {
				key := string(segmentOf(p).flow(p))
				if len(want[key]) == 0 || !bytes.Equal(p, want[key][0]) {
					t.Fatalf("a packet of unit %d is not what was sent next in its flow", k)
				}
				want[key] = want[key][1:]
			}
		}
		for key, left := range want {
			if len(left) > 0 {
				t.Fatalf("%d packets of flow %x were not written", len(left), key)
			}
		}
	}
}

// FuzzCoalesce looks for crashes, for packets that are lost or come twice, and for coalesced ones
// that cannot be segmented into what they were made of.
func FuzzCoalesce(f *testing.F) {
	for _, v6 := range []bool{false, true} {
		whole, o := gsoPacket(v6, 12, 2500, 7, tcpAck|tcpPush)
		list := cutAll(f, whole, o)
		f.Add(list[0], list[1], list[2])
		whole, o = gsoDatagram(v6, 2500)
		list = cutAll(f, whole, o)
		f.Add(list[0], list[1], list[2])
	}
	f.Add([]byte{}, []byte{0x45}, bytes.Repeat([]byte{0x60}, 60))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		list := [][]byte{a, b, c}
		for _, p := range list {
			if len(p) > maxPacket {
				return
			}
			if s := segmentOf(p); s.protocol != 0 { // the fuzzer seldom guesses it
				withChecksum(p, s)
			}
		}
		m := newCoalescer()
		m.addAll(list)
		seen := 0
		for k := range m.units {
			i := m.units[k].first
			for _, p := range m.written(t, k) {
				// The kernel counts IP ids, and their checksum, from the first packet on.
				want := bytes.Clone(list[i])
				if m.units[k].count > 1 && want[0]>>4 == 4 {
					copy(want[4:6], p[4:6])
					want[10], want[11] = 0, 0
					binary.BigEndian.PutUint16(want[10:], ^tun.Checksum(want[:20], 0))
				}
				if s := segmentOf(want); m.units[k].count > 1 && s.protocol == protocolUDP {
					withChecksum(want, s) // it may have had none
				}
				if !bytes.Equal(p, want) {
					t.Fatalf("packet %d became\n%x, was\n%x", i, p, want)
				}
				seen++
				i = m.link[i]
			}
		}
		if seen != len(list) {
			t.Fatalf("%d packets of %d were written", seen, len(list))
		}
	})
}

// TestRefusedGROPacket: a kernel that refuses coalesced packets gets them one by one, and no more
// coalesced ones.
func TestRefusedGROPacket(t *testing.T) {
	whole, o := gsoPacket(false, 12, 3000, 1, tcpAck)
	var bufs [][]byte
	for _, p := range cutAll(t, whole, o) {
		bufs = append(bufs, append(make([]byte, 16), p...))
	}
	d := &tunDevice{}
	w := newTunWriter(d)
	w.bufs, w.offset = bufs, 16
	for _, b := range bufs {
		w.add(b[16:], segmentOf(b[16:]))
	}
	w.decideUnits()
	refuser, err := unix.Eventfd(0, unix.EFD_NONBLOCK) // takes 8 bytes or returns EINVAL
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(refuser)
	if w.write(uintptr(refuser)); w.err == nil || !d.noTCP.Load() ||
		d.noUDP.Load() {
		t.Errorf("error %v, joining is off: %v %v", w.err, d.noTCP.Load(), d.noUDP.Load())
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if err := w.writeSingly(uintptr(fds[0]), &w.units[0]); err != nil {
		t.Fatal(err)
	}
	for i := range bufs {
		got := make([]byte, 2000)
		n, err := unix.Read(fds[1], got)
		if err != nil || !bytes.Equal(got[:n], append(make([]byte, vnetSize), bufs[i][16:]...)) {
			t.Fatalf("packet %d: %d bytes, %v", i, n, err)
		}
	}
}
