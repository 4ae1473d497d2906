// Package poller waits for file descriptors that the runtime's poller does not watch.
//
// The runtime watches a descriptor for all events, all the time. So every packet that is queued or
// sent goes through epoll and wakes a thread of an idle process. It does so although the reader is
// already running and will find the packet in its next batch. That takes 10 to 30 percent of the
// time for a small datagram. Therefore the descriptor is not given to the runtime. It is in a
// separate epoll instance for each direction, which is armed for one event when a goroutine has
// nothing to read or write. The runtime watches those instances, and deadlines and Close work
// through them.
package poller

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Poller waits for one direction of a descriptor. The descriptor must be non-blocking, and must
// stay open until Close has returned.
type Poller struct {
	file   *os.File // the epoll instance
	raw    syscall.RawConn
	fd     int
	events uint32
	armed  bool // an event may come; guarded by the lock of RawConn.Read
}

// Open prepares to wait until fd is ready for events: unix.EPOLLIN or unix.EPOLLOUT.
func (p *Poller) Open(fd int, events uint32) error {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	p.fd, p.events, p.armed = fd, events, true
	// Most new descriptors are writable. Begin consumes that one event. From then on the kernel
	// delivers no event until Wait, not even errors.
	if err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd,
		&unix.EpollEvent{Events: unix.EPOLLOUT | unix.EPOLLONESHOT}); err == nil {
		p.Begin(uintptr(ep))
		err = unix.SetNonblock(ep, true) // so that os.NewFile gives it to the runtime
	}
	if err != nil {
		unix.Close(ep)
		return os.NewSyscallError("epoll_ctl", err)
	}
	p.file = os.NewFile(uintptr(ep), "epoll")
	if p.raw, err = p.file.SyscallConn(); err != nil {
		p.file.Close()
	}
	return err
}

// Run calls f until it returns true, one goroutine at a time. f calls Begin before it tries the
// descriptor. If the descriptor is not ready, f calls Wait and returns false. ep is the argument of
// both. The error is os.ErrDeadlineExceeded or os.ErrClosed.
func (p *Poller) Run(f func(ep uintptr) bool) error {
	err := p.raw.Read(f)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return os.ErrClosed // the runtime has another error for this
	}
	return err
}

// Begin consumes a pending event, so that later packets do not pass through epoll.
func (p *Poller) Begin(ep uintptr) {
	if !p.armed {
		return
	}
	var events [1]unix.EpollEvent
	n, _ := unix.EpollWait(int(ep), events[:], 0)
	p.armed = n == 0
}

// Wait arms the next event, which wakes the goroutine. If the descriptor has become ready since
// Begin, that happens at once.
func (p *Poller) Wait(ep uintptr) {
	p.armed = true
	// This fails only without memory or if the descriptor is closed. Then the deadline or Close
	// ends the wait.
	_ = unix.EpollCtl(int(ep), unix.EPOLL_CTL_MOD, p.fd,
		&unix.EpollEvent{Events: p.events | unix.EPOLLONESHOT})
}

// Control calls f. Close waits until f has returned. Control fails after Close.
func (p *Poller) Control(f func()) error { return p.raw.Control(func(uintptr) { f() }) }

// SetDeadline makes Run fail with os.ErrDeadlineExceeded from t on; the zero value means never.
func (p *Poller) SetDeadline(t time.Time) error { return p.file.SetReadDeadline(t) }

// Close ends Run with os.ErrClosed. When it returns, no goroutine uses the descriptor through the
// Poller.
func (p *Poller) Close() error { return p.file.Close() }
