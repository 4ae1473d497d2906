package overlay

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/tailscale/wireguard-go/tun"
	"golang.org/x/sys/unix"
)

// vnetBytes is a header as the kernel writes it.
func vnetBytes(flags, kind byte, header, segment, start, offset uint16) []byte {
	b := []byte{flags, kind}
	for _, n := range []uint16{header, segment, start, offset} {
		b = binary.NativeEndian.AppendUint16(b, n)
	}
	return b
}

// FuzzVnet gives the cutter any header and any packets, as a broken kernel would: a small one and
// what came behind it. No packet may lie outside the slab, overlap another, or stand where no
// spacing is left.
func FuzzVnet(f *testing.F) {
	whole, _ := gsoPacket(false, 12, 5000, 1, tcpAck)
	f.Add(vnetBytes(1, unix.VIRTIO_NET_HDR_GSO_TCPV4, 52, 1000, 20, 16), whole)
	whole, _ = gsoPacket(true, 0, 5000, 1, tcpAck)
	f.Add(vnetBytes(1, unix.VIRTIO_NET_HDR_GSO_TCPV6, 60, 1, 40, 16), whole)
	f.Add(vnetBytes(1, unix.VIRTIO_NET_HDR_GSO_UDP_L4, 28, 200, 20, 6), whole)
	f.Add(vnetBytes(1, unix.VIRTIO_NET_HDR_GSO_NONE, 0, 0, 65535, 65535), whole[:40])
	f.Add(vnetBytes(0, 0x83, 0, 0, 0, 0), []byte{0x45})
	f.Add(vnetBytes(0xff, 0xff, 0xffff, 0xffff, 0xffff, 0xffff), []byte{})
	f.Fuzz(func(t *testing.T, head, p []byte) {
		if len(head) < vnetSize || len(p) > 65535 {
			return
		}
		slab, packets := make([]byte, 2*65535), make([]tun.ReadPacket, batchSize)
		d := &tunReader{tun: &tunDevice{}, slab: slab}
		small := append(vnetBytes(0, 0, 0, 0, 0, 0), bytes.Repeat([]byte{0x45}, 40)...)
		copy(slab[spacing-vnetSize:], small)
		d.add(spacing, len(small))
		at := spacing + 40 + spacing
		copy(slab[at-vnetSize:], head[:vnetSize])
		copy(slab[at:], p)
		if fr := d.add(at, vnetSize+len(p)); fr.head.gso() && !fr.fits(len(slab), 1) {
			return // it would be held back
		}
		d.dropMisplaced(slab)
		n := d.cut(slab, packets)
		if n < 1 {
			t.Fatalf("%d packets", n)
		}
		end := 0
		for i, q := range packets[:n] {
			if q.Offset < end+spacing || q.Size < 0 || q.Offset+q.Size+spacing > len(slab) {
				t.Fatalf("packet %d is at %d, %d bytes, behind %d", i, q.Offset, q.Size, end)
			}
			end = q.Offset + q.Size
		}
		if !bytes.Equal(slab[spacing:spacing+40], small[vnetSize:]) {
			t.Fatal("the first packet was overwritten")
		}
	})
}

// TestFits: what does not fit behind other packets is held back for the next read.
func TestFits(t *testing.T) {
	whole, _ := gsoPacket(false, 12, 60000, 1, tcpAck)
	head := readVnet(vnetBytes(1, unix.VIRTIO_NET_HDR_GSO_TCPV4, 52, 1368, 20, 16))
	for _, c := range []struct {
		at, before int
		fits       bool
	}{{spacing, 0, true}, {spacing + 10000, 10, true}, {70000, 10, false},
		{spacing + 10000, batchSize - 40, false}} {
		if got := (frame{c.at, len(whole), head}).fits(2*65535, c.before); got != c.fits {
			t.Errorf("at %d behind %d packets: fits is %v", c.at, c.before, got)
		}
	}
}

func newPackets() []tun.ReadPacket { return make([]tun.ReadPacket, batchSize) }

// TestReadFrames reads packets from a socket pair in place of the interface. Small ones come
// together, and a GSO packet that does not fit behind them comes with the next read.
func TestReadFrames(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	for _, s := range fds {
		if err := unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20); err != nil {
			t.Skipf("SKIPPED: needs root for a large buffer: %v", err)
		}
	}
	whole, _ := gsoPacket(false, 12, 60000, 1, tcpAck)
	gso := append(vnetBytes(1, unix.VIRTIO_NET_HDR_GSO_TCPV4, 52, 1368, 20, 16), whole...)
	small := append(vnetBytes(0, 0, 0, 0, 0, 0), bytes.Repeat([]byte{0x45}, 1000)...)
	send := func(b []byte) {
		t.Helper()
		if _, err := unix.Write(fds[0], b); err != nil {
			t.Fatal(err)
		}
	}
	for range 60 {
		send(small)
	}
	send(gso)
	send(small)
	slab, packets := make([]byte, 2*65535), newPackets()
	d := &tunReader{tun: &tunDevice{}, frames: make([]frame, 0, readLimit), at: spacing}
	var counts []int
	for range 3 {
		d.frames, d.slab = d.frames[:0], slab
		if len(d.held) > 0 {
			if err := d.fill(slab); err != nil {
				t.Fatal(err)
			}
		} else if !d.readFrames(fds[1]) || d.err != nil {
			t.Fatalf("after %v: nothing, %v", counts, d.err)
		}
		counts = append(counts, d.cut(slab, packets))
	}
	if counts[0] != 60 || counts[1] != 44 || counts[2] != 1 {
		t.Errorf("read %v packets, want 60, 44 and 1", counts)
	}
	d.frames = d.frames[:0]
	if d.readFrames(fds[1]) {
		t.Error("read something from an empty interface")
	}
}
