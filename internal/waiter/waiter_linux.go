// Package waiter waits for file descriptors that the runtime's poller does not watch.
//
// The poller watches a descriptor for everything, all the time: every single packet that is queued
// or sent then walks through epoll, and wakes a thread of an idle process, although its reader is
// awake already and will find it in its next batch. That is 10 to 30 percent of the cost of a small
// datagram. So such a descriptor is not given to the poller. It sits in an epoll instance of its
// own for each direction, which is armed for one event when a goroutine has found nothing to do;
// those instances are what the poller watches. Deadlines and Close work through them.
package waiter

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Waiter waits for one direction of a descriptor. The descriptor must not block, and must stay open
// until after Close.
type Waiter struct {
	file   *os.File // the epoll instance
	raw    syscall.RawConn
	fd     int
	events uint32
	armed  bool // an event may come; guarded by the lock that RawConn.Read holds
}

// Open prepares for waiting until fd is ready for events: unix.EPOLLIN or unix.EPOLLOUT.
func (w *Waiter) Open(fd int, events uint32) error {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	w.fd, w.events, w.armed = fd, events, true
	// Most descriptors are writable when they are new: Begin takes that one event, and nothing is
	// told any more, not even errors.
	if err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd,
		&unix.EpollEvent{Events: unix.EPOLLOUT | unix.EPOLLONESHOT}); err == nil {
		w.Begin(uintptr(ep))
		err = unix.SetNonblock(ep, true) // makes os.NewFile give it to the poller
	}
	if err != nil {
		unix.Close(ep)
		return os.NewSyscallError("epoll_ctl", err)
	}
	w.file = os.NewFile(uintptr(ep), "epoll")
	if w.raw, err = w.file.SyscallConn(); err != nil {
		w.file.Close()
	}
	return err
}

// Run calls f until it returns true, one goroutine at a time. f calls Begin before it tries the
// descriptor; when that would have to wait, f calls Wait and returns false. ep is for these two.
// The error is os.ErrDeadlineExceeded or os.ErrClosed.
func (w *Waiter) Run(f func(ep uintptr) bool) error {
	err := w.raw.Read(f)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return os.ErrClosed // the runtime's own error is another
	}
	return err
}

// Begin takes a pending event away, so that later packets pass epoll by.
func (w *Waiter) Begin(ep uintptr) {
	if !w.armed {
		return
	}
	var events [1]unix.EpollEvent
	n, _ := unix.EpollWait(int(ep), events[:], 0)
	w.armed = n == 0
}

// Wait lets the next event wake the goroutine. One that came in between does so at once.
func (w *Waiter) Wait(ep uintptr) {
	w.armed = true
	// Fails only without memory or when the descriptor is gone; then the deadline or Close ends the
	// wait.
	_ = unix.EpollCtl(int(ep), unix.EPOLL_CTL_MOD, w.fd,
		&unix.EpollEvent{Events: w.events | unix.EPOLLONESHOT})
}

// Control calls f while the Waiter cannot be closed. It fails after Close.
func (w *Waiter) Control(f func()) error { return w.raw.Control(func(uintptr) { f() }) }

// SetDeadline makes Run fail with os.ErrDeadlineExceeded from t on; the zero value means never.
func (w *Waiter) SetDeadline(t time.Time) error { return w.file.SetReadDeadline(t) }

// Close ends Run with os.ErrClosed, and returns when nobody uses the descriptor through the Waiter
// any more.
func (w *Waiter) Close() error { return w.file.Close() }
