package overlay

import (
	"errors"
	"os"
	"syscall"

	"github.com/tailscale/wireguard-go/tun"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
)

// frame is a packet as the kernel gave it, at an offset in the slab.
type frame struct {
	at, size int
	head     vnet
}

// tunReader reads the interface. One read gives one packet, or one GSO packet. After a small one,
// more are read until none is left, so that a flood of small packets is sealed and sent in batches
// as well. It is for one goroutine.
type tunReader struct {
	tun      *tunDevice
	fd       int
	frames   []frame
	held     []byte // a GSO packet that did not fit behind the others, with its header
	heldBack heldBack
	v        verdicts
	sealer   sealer
	slab     []byte // operands of the callback, which is bound once
	at       int    // where the first packet goes
	before   int    // how many packets lie before that
	err      error
	readAll  func(ep uintptr) bool
}

const (
	spacing = tun.ReadPacketSpacing
	// frameSpace is how much of the slab must be free before a read: a frame of any size may come.
	frameSpace = 65535 + 2*spacing
	// readLimit is how many packets are read at most before they are passed on.
	readLimit = 128
)

func (r *tunReader) init(t *tunDevice, fd int) {
	r.tun, r.fd, r.sealer.lost = t, fd, t.lost
	r.frames = make([]frame, 0, readLimit)
	r.readAll = func(ep uintptr) bool {
		r.tun.ready.Begin(ep)
		if r.readFrames(r.fd) {
			return true
		}
		r.tun.ready.Wait(ep)
		return false
	}
}

// Read implements tun.Reader.
func (t *tunDevice) Read(slab []byte, packets []tun.ReadPacket) (int, error) {
	return t.in.read(slab, packets)
}

func (r *tunReader) read(slab []byte, packets []tun.ReadPacket) (int, error) {
	for {
		r.before, r.at = r.heldBack.restore(slab, packets)
		n := r.before
		if err := r.fill(slab); err != nil && n == 0 {
			return 0, err
		}
		if len(r.frames) > 0 {
			r.dropLoops(slab)
			r.dropMisplaced(slab)
			r.filter(slab)
			n += r.cut(slab, packets[n:])
			if k := len(r.frames); k > 0 && r.frames[k-1].head.gso() {
				n -= r.heldBack.keep(slab, packets[:n], int(r.tun.mtu.Load()))
			}
		}
		if n = r.sealer.send(slab, packets[:n]); n > 0 {
			return n, nil
		}
	}
}

// fill puts at least one frame into the slab. Behind packets that were held back it does not wait
// for one.
func (r *tunReader) fill(slab []byte) error {
	r.frames, r.slab, r.err = r.frames[:0], slab, nil
	if len(r.held) > 0 {
		n := copy(slab[r.at-vnetSize:], r.held)
		r.held = r.held[:0]
		r.add(r.at, n)
		return nil
	}
	err := r.tun.ready.Run(r.readAll)
	r.slab = nil
	if err == nil {
		err = r.err
	}
	if errors.Is(err, syscall.EBADFD) || errors.Is(err, os.ErrClosed) {
		return os.ErrClosed
	}
	return err
}

// add appends a frame whose header ends at offset at; n includes the header.
func (r *tunReader) add(at, n int) frame {
	f := frame{at: at, size: n - vnetSize, head: readVnet(r.slab[at-vnetSize:])}
	r.frames = append(r.frames, f)
	return f
}

// readFrames reads what is there; false means that the caller has to wait for more.
func (r *tunReader) readFrames(fd int) bool {
	at := r.at
	for len(r.frames) < readLimit && len(r.slab)-at >= frameSpace-spacing {
		n, err := unix.Read(fd, r.slab[at-vnetSize:len(r.slab)-spacing])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return r.before+len(r.frames) > 0
		case err != nil:
			r.err = err
			return true
		case n <= vnetSize:
			continue
		}
		f := r.add(at, n)
		if f.head.gso() {
			if before := r.before + len(r.frames) - 1; before > 0 && !f.fits(len(r.slab), before) {
				r.frames = r.frames[:len(r.frames)-1]
				r.held = append(r.held[:0], r.slab[at-vnetSize:at+f.size]...)
			}
			return true
		}
		at += f.size + spacing
	}
	return true
}

// fits reports whether a GSO packet behind others can be segmented in place, within a slab of size
// bytes and the space for batchSize packets.
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
func (r *tunReader) filter(slab []byte) {
	if r.tun.filter == nil {
		return
	}
	for _, f := range r.frames {
		segment := uint16(0)
		if f.head.gso() {
			segment = f.head.segment
		}
		r.v.put(slab[f.at:f.at+f.size:f.at+f.size], segment)
	}
	r.v.decide(r.tun.filter, firewall.Hook{Dir: firewall.Out, Xmit: r.tun.index})
	kept := r.frames[:0]
	for i, f := range r.frames {
		if r.v.pass[i] {
			kept = append(kept, f)
		}
	}
	r.tun.dropped[firewall.Out].Add(uint64(len(r.frames) - len(kept)))
	r.frames = kept
	r.v.reset()
}

// cut makes packets of the frames: it computes checksums, and segments GSO packets; only the last
// frame can be one.
func (r *tunReader) cut(slab []byte, packets []tun.ReadPacket) (k int) {
	for _, f := range r.frames {
		in := slab[f.at : f.at+f.size]
		o, err := f.head.options(in)
		if err != nil {
			r.tun.broken.Add(1)
			continue
		}
		if !f.head.gso() {
			r.tun.clamp(in, firewall.Out, o.NeedsCsum)
			if o.NeedsCsum && !finishChecksum(in, o) {
				r.tun.broken.Add(1)
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
			if o.NeedsCsum && o.GSOType == tun.GSOUDPL4 {
				neverZero(slab[packets[i].Offset+int(o.CsumStart)+int(o.CsumOffset):])
			}
		}
		if k += n; err != nil {
			r.tun.broken.Add(1)
		}
	}
	return k
}
