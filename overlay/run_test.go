package overlay

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/tailscale/wireguard-go/tun"

	"github.com/weirnet/weir/packet"
)

// superPacket is what the kernel hands to a TUN device: headers for all of the payload.
func superPacket(v6 bool, options, payload int, seq uint32, flags byte) (p []byte, o tun.GSOOptions) {
	ip := 20
	if v6 {
		ip = 40
	}
	p = make([]byte, ip+20+options+payload)
	if v6 {
		p[0], p[6], p[7] = 0x60, 6, 64
		binary.BigEndian.PutUint16(p[4:], uint16(len(p)-40))
		p[8], p[23], p[24], p[39] = 0xfd, 1, 0xfd, 2
		o.GSOType = tun.GSOTCPv6
	} else {
		p[0], p[6], p[8], p[9] = 0x45, 0x40, 64, 6
		binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
		copy(p[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
		o.GSOType = tun.GSOTCPv4
	}
	tcp := p[ip:]
	binary.BigEndian.PutUint16(tcp, 5000)
	binary.BigEndian.PutUint16(tcp[2:], 80)
	binary.BigEndian.PutUint32(tcp[4:], seq)
	tcp[12], tcp[13], tcp[15] = byte(20+options)/4<<4, flags, 9
	for i := range options {
		tcp[20+i] = 1
	}
	o.HdrLen, o.CsumStart, o.CsumOffset, o.GSOSize, o.NeedsCsum = uint16(ip+20+options), uint16(ip), 16, 1000, true
	return p, o
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

// TestRuns cuts super packets and wants them joined again: what is judged has the fields of the whole.
func TestRuns(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, options := range []int{0, 12, 40} {
			for _, payload := range []int{1, 1000, 1001, 2000, 64000} {
				whole, o := superPacket(v6, options, payload, 0xffffff00, tcpAck|tcpPush)
				list := cutAll(t, whole, o)
				var r runs
				for range 3 { // the memory is used again
					r.reset()
					for _, p := range list {
						r.add(p)
					}
				}
				if len(r.packets) != 1 || len(r.of) != len(list) {
					t.Fatalf("%d bytes: %d packets of %d segments", payload, len(r.packets), len(list))
				}
				var want, got packet.Packet
				want.Decode(whole)
				got.Decode(r.packets[0])
				want.IPID, got.IPID = 0, 0
				if want != got {
					t.Errorf("judged as\n%+v, want\n%+v", got, want)
				}
			}
		}
	}
}

// TestRunsBreak changes one thing about the second of three segments, which must then not be joined.
func TestRunsBreak(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		ip := 20
		if v6 {
			ip = 40
		}
		for name, change := range map[string]func(p []byte) []byte{
			"tos":          func(p []byte) []byte { p[1] ^= 0x10; return p },
			"ttl":          func(p []byte) []byte { p[map[bool]int{false: 8, true: 7}[v6]]--; return p },
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
			"cut off":      func(p []byte) []byte { return p[:len(p)-1] },
			"too short":    func(p []byte) []byte { return p[:ip+10] },
			"version":      func(p []byte) []byte { p[0] = 0x75; return p },
			"protocol":     func(p []byte) []byte { p[map[bool]int{false: 9, true: 6}[v6]] = 17; return p },
			"empty":        func(p []byte) []byte { return nil },
		} {
			whole, o := superPacket(v6, 12, 3000, 1, tcpAck)
			list := cutAll(t, whole, o)
			before := bytes.Clone(list[0])
			list[1] = change(list[1])
			var r runs
			for _, p := range list {
				r.add(p)
			}
			if len(r.packets) != 3 || r.of[1] == r.of[0] || r.of[1] == r.of[2] {
				t.Errorf("v6 %v: other %s: %d packets from 3 segments, %v", v6, name, len(r.packets), r.of)
			}
			if !bytes.Equal(list[0], before) {
				t.Errorf("%s: the packet was written to", name)
			}
		}
	}
}

// TestManyRuns mixes the segments of many super packets at random and wants each to be judged by headers of its own.
func TestManyRuns(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var r runs
	for range 200 {
		r.reset()
		var sent [][]byte
		for len(sent) < 200 {
			whole, o := superPacket(rnd.IntN(2) == 0, 4*rnd.IntN(4), 1+rnd.IntN(20000), rnd.Uint32(), tcpAck|byte(rnd.IntN(2))*tcpPush)
			sent = append(sent, cutAll(t, whole, o)...)
		}
		for _, p := range sent {
			r.add(p)
		}
		payload := make([]int, len(r.packets))
		for i, p := range sent {
			s, j := segmentOf(p), segmentOf(r.packets[r.of[i]])
			if j.seq+uint32(payload[r.of[i]]) != s.seq || j.header != s.header {
				t.Fatalf("packet %d is judged by %+v, which is not its run", i, j)
			}
			payload[r.of[i]] += s.payload
		}
		for i, p := range r.packets {
			if segmentOf(p).payload != payload[i] {
				t.Fatalf("run %d has %d bytes, its segments %d", i, segmentOf(p).payload, payload[i])
			}
		}
	}
}

// FuzzRuns looks for crashes, and for packets that are judged by something else than a run that begins with themselves or
// continues.
func FuzzRuns(f *testing.F) {
	whole, o := superPacket(false, 12, 2500, 7, tcpAck|tcpPush)
	list := cutAll(f, whole, o)
	f.Add(list[0], list[1], list[2])
	whole, o = superPacket(true, 0, 2500, 7, tcpAck)
	list = cutAll(f, whole, o)
	f.Add(list[0], list[1], list[2])
	f.Add([]byte{}, []byte{0x45}, bytes.Repeat([]byte{0x60}, 60))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		var r runs
		total := 0
		for _, p := range [][]byte{a, b, c} {
			r.add(p)
			total += len(p)
		}
		judged := 0
		for _, p := range r.packets {
			judged += len(p)
		}
		if len(r.of) != 3 || judged > total {
			t.Fatalf("%d bytes are judged as %d; %v", total, judged, r.of)
		}
	})
}
