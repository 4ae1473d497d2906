package overlay

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
)

// tunWriter is the memory of one Write: packets that came from a peer are coalesced, filtered, and
// given to the kernel.
type tunWriter struct {
	tun    *tunDevice
	bufs   [][]byte
	offset int
	coalescer
	verdicts

	err     error
	vectors []unix.Iovec
	write   func(fd uintptr) // writeUnits, bound once
}

func newTunWriter(t *tunDevice) *tunWriter {
	w := &tunWriter{tun: t}
	w.write = w.writeUnits
	w.reset()
	return w
}

// Write implements tun.Device: packets that came from peers, authentic and from their pod ranges,
// go to the kernel. Each has offset bytes in front of it that may be written to.
func (t *tunDevice) Write(bufs [][]byte, offset int) (int, error) {
	w := t.writers.get()
	defer t.writers.put(w)
	defer w.reset()
	w.bufs, w.offset = bufs, offset
	w.noTCP, w.noUDP = t.noTCP.Load(), t.noUDP.Load()
	for _, b := range bufs {
		p := b[offset:]
		s := segmentOf(p)
		if s.protocol == 0 {
			t.clamp(p, firewall.In, false)
		}
		w.add(p, s)
	}
	w.decideUnits()
	return len(bufs), w.writeAll()
}

// decideUnits asks the filter about every unit.
func (w *tunWriter) decideUnits() {
	for k := range w.units {
		segment := uint16(0)
		if u := &w.units[k]; u.count > 1 {
			segment = uint16(u.payload)
		}
		w.put(w.packet(k), segment)
	}
	w.decide(w.tun.filter, firewall.Hook{Dir: firewall.In, Recv: w.tun.index})
}

// writeAll writes every unit that passed. Several peers may do so at once, without a lock.
func (w *tunWriter) writeAll() error {
	if err := w.tun.raw.Control(w.write); err != nil {
		return os.ErrClosed
	}
	if errors.Is(w.err, syscall.EBADFD) { // the interface was removed
		return os.ErrClosed
	}
	return w.err
}

// writeUnits writes one unit after the other. A unit that the kernel refuses does not stop the
// others.
func (w *tunWriter) writeUnits(fd uintptr) {
	for i := range w.units {
		u := &w.units[i]
		if !w.pass[i] {
			w.tun.dropped[firewall.In].Add(uint64(u.count))
			continue
		}
		err := w.writeUnit(fd, u)
		if err == unix.EINVAL && u.count > 1 {
			w.tun.coalesceRefused(u.protocol)
			err = w.writeSingly(fd, u)
		}
		if err != nil && w.err == nil {
			w.err = fmt.Errorf("overlay: write a packet to the TUN interface: %w", err)
		}
	}
}

func (w *tunWriter) writeUnit(fd uintptr, u *unit) error {
	if u.count == 1 {
		return w.writePacket(fd, u.first)
	}
	w.vectors = w.vectors[:0]
	w.addVector(u.finish(w.slab))
	for i := u.first; i >= 0; i = w.link[i] {
		w.addVector(w.in[i][u.header:])
	}
	for {
		_, _, errno := unix.Syscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&w.vectors[0])),
			uintptr(len(w.vectors)))
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return errno
		}
	}
}

func (w *tunWriter) addVector(b []byte) {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b))
	w.vectors = append(w.vectors, v)
}

// writePacket writes packet i as it came.
func (w *tunWriter) writePacket(fd uintptr, i int32) error {
	b := w.bufs[i][w.offset-vnetSize:]
	clear(b[:vnetSize])
	for {
		if _, err := unix.Write(int(fd), b); err != unix.EINTR {
			return err
		}
	}
}

// writeSingly writes the packets of a coalesced unit one by one.
func (w *tunWriter) writeSingly(fd uintptr, u *unit) (err error) {
	for i := u.first; i >= 0; i = w.link[i] {
		if e := w.writePacket(fd, i); e != nil {
			err = e
		}
	}
	return err
}

func (w *tunWriter) reset() {
	clear(w.vectors[:cap(w.vectors)])
	w.bufs, w.err = nil, nil
	w.coalescer.reset()
	w.verdicts.reset()
}
