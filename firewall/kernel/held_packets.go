package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/weirnet/weir/packet"
)

// While our programs take the hooks of another engine, that one's table has flows that are not
// copied yet. What our rules refuse then may belong to them: it is held (bpf/lib/held_packets.h),
// and given to its hook again when all flows are here. What finds no space is refused, as it would
// be later.

// holdLocked has our programs hold what they refuse. What an engine has held that was killed is too
// old by now.
func (e *Engine) holdLocked() error {
	if err := e.eachHeldLocked(func(*weirHeldFrame) error { return nil }); err != nil {
		return err
	}
	e.config.Holding = 1
	return e.putConfigLocked()
}

// letGoLocked ends that, and has our programs decide about all that is held.
func (e *Engine) letGoLocked() error {
	e.config.Holding = 0
	if err := errors.Join(e.putConfigLocked(), e.waitForPackets(e.image)); err != nil {
		return err
	}
	return e.eachHeldLocked(e.letPacketGo)
}

// eachHeldLocked takes what is held, one packet after the other. f must not keep it.
func (e *Engine) eachHeldLocked(f func(*weirHeldFrame) error) error {
	r, err := ringbuf.NewReader(e.objects.HeldPackets)
	if err != nil {
		return fmt.Errorf("open the ring of held packets: %w", err)
	}
	defer r.Close()
	r.SetDeadline(time.Unix(1, 0)) // does not wait
	var record ringbuf.Record
	for {
		err := r.ReadInto(&record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the ring of held packets: %w", err)
		}
		if len(record.RawSample) < int(unsafe.Sizeof(weirHeldFrame{})) {
			continue
		}
		if err := f((*weirHeldFrame)(unsafe.Pointer(&record.RawSample[0]))); err != nil {
			return err
		}
	}
}

// skbSize is the size of struct __sk_buff, include/uapi/linux/bpf.h.
const skbSize = 192

// letPacketGo gives a packet to its hook again. An interface that is gone or down takes none.
func (e *Engine) letPacketGo(h *weirHeldFrame) error {
	frame := h.Data[:min(int(h.Size), len(h.Data))]
	completeChecksum(frame)
	context := make([]byte, skbSize)
	for at, v := range map[int]uint32{8: h.Mark, 32: h.Priority, 36: h.IngressIfindex,
		40: h.Ifindex, 48: h.PktType, 52: h.Dir} {
		binary.NativeEndian.PutUint32(context[at:], v)
	}
	_, err := e.objects.WeirRelease.Run(&ebpf.RunOptions{Data: frame, Context: context})
	if err != nil && !gone(err) {
		return fmt.Errorf("give a held packet of %d bytes to interface %d: %w", len(frame),
			h.Ifindex, err)
	}
	return nil
}

// completeChecksum gives a packet of TCP or UDP the checksum that its sender left to the NIC: the
// field has the sum of the pseudo-header then (CHECKSUM_PARTIAL, include/linux/skbuff.h). Any other
// checksum stays, right or wrong.
func completeChecksum(frame []byte) {
	var p packet.Packet
	f := p.DecodeFrame(packet.LinkEthernet, frame)
	if p.Version == 0 || p.Reason != packet.ReasonNone || p.IsFragment() {
		return
	}
	segment := frame[f.L3:][p.L4:p.Len()]
	at := 16
	switch p.Proto {
	case packet.ProtoTCP:
	case packet.ProtoUDP:
		at = 6
	default:
		return
	}
	pseudo := onesSum(0, p.SrcIP[:])
	pseudo = onesSum(pseudo, p.DstIP[:])
	if p.Version == 4 { // without the prefix ::ffff:0:0
		pseudo = onesSum(onesSum(0, p.SrcIP[12:]), p.DstIP[12:])
	}
	pseudo = onesSum(pseudo, []byte{0, byte(p.Proto), byte(len(segment) >> 8), byte(len(segment))})
	field := segment[at : at+2]
	if binary.BigEndian.Uint16(field) != pseudo {
		return
	}
	clear(field)
	sum := ^onesSum(pseudo, segment)
	if sum == 0 && p.Proto == packet.ProtoUDP { // RFC 768: 0 means none
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(field, sum)
}

// onesSum adds the big-endian words of b to s, in ones' complement (RFC 1071).
func onesSum(s uint16, b []byte) uint16 {
	sum := uint32(s)
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
