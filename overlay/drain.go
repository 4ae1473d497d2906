package overlay

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"

	"github.com/tailscale/wireguard-go/tun"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
)

// frame is a packet as the kernel gave it, at a place in the slab.
type frame struct {
	at, size int
	head     vnet
}

// drainer reads the interface. One read gives one packet, or one super packet; when it is a small
// one, more is read until nothing is left, so that a flood of small packets is sealed and sent in
// batches as well. It is for one goroutine.
type drainer struct {
	tun     *tunDevice
	fd      int
	frames  []frame
	held    []byte // a super packet that did not fit behind the others, with its header
	surplus surplus
	v       verdicts
	slab    []byte // operands of the callback, which is bound once
	at      int    // where the first packet goes
	before  int    // how many packets lie before that
	err     error
	readAll func(ep uintptr) bool
}

const (
	spacing = tun.ReadPacketSpacing
	// frameRoom is what must be free in the slab before a read: anything may come.
	frameRoom = 65535 + 2*spacing
	// drainLimit is how many packets are read at most before they are passed on.
	drainLimit = 128
)

func (d *drainer) init(t *tunDevice, fd int) {
	d.tun, d.fd = t, fd
	d.frames = make([]frame, 0, drainLimit)
	d.readAll = func(ep uintptr) bool {
		d.tun.ready.Begin(ep)
		if d.drain(d.fd) {
			return true
		}
		d.tun.ready.Wait(ep)
		return false
	}
}

// Read implements tun.Reader.
func (t *tunDevice) Read(slab []byte, packets []tun.ReadPacket) (int, error) {
	return t.in.read(slab, packets)
}

func (d *drainer) read(slab []byte, packets []tun.ReadPacket) (int, error) {
	for {
		d.before, d.at = d.surplus.restore(slab, packets)
		n := d.before
		if err := d.fill(slab); err != nil && n == 0 {
			return 0, err
		}
		if len(d.frames) > 0 {
			d.filter(slab)
			n += d.cut(slab, packets[n:])
			if k := len(d.frames); k > 0 && d.frames[k-1].head.super() {
				n -= d.surplus.keep(slab, packets[:n], int(d.tun.mtu.Load()))
			}
		}
		if n > 0 {
			return n, nil
		}
	}
}

// fill puts at least one frame into the slab; behind packets that were kept back only when one is
// there.
func (d *drainer) fill(slab []byte) error {
	d.frames, d.slab, d.err = d.frames[:0], slab, nil
	if len(d.held) > 0 {
		n := copy(slab[d.at-vnetSize:], d.held)
		d.held = d.held[:0]
		d.add(d.at, n)
		return nil
	}
	err := d.tun.ready.Run(d.readAll)
	d.slab = nil
	if err == nil {
		err = d.err
	}
	if errors.Is(err, syscall.EBADFD) || errors.Is(err, os.ErrClosed) {
		return os.ErrClosed
	}
	return err
}

// add notes a frame whose header ends at at; n counts the header too.
func (d *drainer) add(at, n int) frame {
	f := frame{at: at, size: n - vnetSize, head: readVnet(d.slab[at-vnetSize:])}
	d.frames = append(d.frames, f)
	return f
}

// drain reads what is there; false means wait until something is.
func (d *drainer) drain(fd int) bool {
	at := d.at
	for len(d.frames) < drainLimit && len(d.slab)-at >= frameRoom-spacing {
		n, err := unix.Read(fd, d.slab[at-vnetSize:len(d.slab)-spacing])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return d.before+len(d.frames) > 0
		case err != nil:
			d.err = err
			return true
		case n <= vnetSize:
			continue
		}
		f := d.add(at, n)
		if f.head.super() {
			if before := d.before + len(d.frames) - 1; before > 0 && !f.fits(len(d.slab), before) {
				d.frames = d.frames[:len(d.frames)-1]
				d.held = append(d.held[:0], d.slab[at-vnetSize:at+f.size]...)
			}
			return true
		}
		at += f.size + spacing
	}
	return true
}

// fits says whether a super packet behind others can be cut in place. The last byte of a slab of
// size bytes, and the place for the last packet, are never passed.
func (f frame) fits(size, before int) bool {
	segment := int(f.head.segment)
	if segment == 0 {
		return true // cut refuses it
	}
	segments := f.size/segment + 1
	const headers = 128 // of IP and TCP, with all options
	return before+segments <= batchSize && f.at+f.size+segments*(headers+spacing)+spacing <= size
}

// filter takes out the frames that are refused.
func (d *drainer) filter(slab []byte) {
	if d.tun.filter == nil {
		return
	}
	for _, f := range d.frames {
		d.v.packets = append(d.v.packets, slab[f.at:f.at+f.size:f.at+f.size])
	}
	d.v.decide(d.tun.filter, firewall.Hook{Dir: firewall.Out, Xmit: d.tun.index})
	kept := d.frames[:0]
	for i, f := range d.frames {
		if d.v.pass[i] {
			kept = append(kept, f)
		}
	}
	d.tun.dropped[firewall.Out].Add(uint64(len(d.frames) - len(kept)))
	d.frames = kept
	d.v.reset()
}

// cut makes packets of the frames: it computes checksums, and cuts super packets, of which only the
// last frame is one.
func (d *drainer) cut(slab []byte, packets []tun.ReadPacket) (k int) {
	for _, f := range d.frames {
		in := slab[f.at : f.at+f.size]
		o, err := f.head.options(in)
		if err != nil {
			d.tun.broken.Add(1)
			continue
		}
		if !f.head.super() {
			clampMSS(in, d.tun.mtuOf(in, firewall.Out), o.NeedsCsum)
			if o.NeedsCsum && !finishChecksum(in, o) {
				d.tun.broken.Add(1)
				continue
			}
			packets[k] = tun.ReadPacket{Offset: f.at, Size: f.size}
			k++
			continue
		}
		base := f.at - spacing
		n, err := tun.GSOSplit(in, o, slab[base:], packets[k:], spacing)
		for i := k; i < k+n; i++ {
			packets[i].Offset += base
		}
		if k += n; err != nil {
			d.tun.broken.Add(1)
		}
	}
	return k
}

// finishChecksum completes a checksum that the kernel left to us: the field holds the sum of the
// pseudo header.
func finishChecksum(packet []byte, o tun.GSOOptions) bool {
	start, at := int(o.CsumStart), int(o.CsumStart)+int(o.CsumOffset)
	if at+2 > len(packet) {
		return false
	}
	initial := binary.BigEndian.Uint16(packet[at:])
	packet[at], packet[at+1] = 0, 0
	binary.BigEndian.PutUint16(packet[at:], ^tun.Checksum(packet[start:], initial))
	return true
}
