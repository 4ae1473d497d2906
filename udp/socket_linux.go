package udp

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a descriptor with a way to wait for it.
//
// The runtime's poller watches a descriptor for everything, all the time: every single datagram that is queued or sent
// then walks through epoll, and wakes a thread of an idle process, although the reader is awake already and will find it
// in its next batch. That is 10 to 30 percent of the cost of a small datagram. So the socket is not given to the poller.
// It sits in two epoll instances of its own, one for each direction, which are armed for one event when a goroutine has
// found nothing to do; those are what the poller watches. Deadlines and Close work through them.
type socket struct {
	fd          int
	read, write waiter
	closed      atomic.Bool
	cleanup     runtime.Cleanup
}

// waiter waits for one direction of a socket.
type waiter struct {
	file   *os.File // the epoll instance
	raw    syscall.RawConn
	fd     int // of the socket
	events uint32
	armed  bool // guarded by the lock that RawConn.Read holds
}

// newSocket takes the descriptor out of pc, which is closed.
func newSocket(pc syscall.Conn) (*socket, error) {
	raw, err := pc.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if e := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("duplicate the descriptor: %w", err)
	}
	s := &socket{fd: fd}
	if err = s.read.open(fd, unix.EPOLLIN); err == nil {
		if err = s.write.open(fd, unix.EPOLLOUT); err != nil {
			s.read.file.Close()
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	s.cleanup = runtime.AddCleanup(s, func(fd int) { unix.Close(fd) }, fd)
	return s, nil
}

func (w *waiter) open(fd int, events uint32) error {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	w.fd, w.events = fd, events
	// Events 0 and one-shot: only errors are told, once.
	if err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLONESHOT}); err == nil {
		err = unix.SetNonblock(ep, true) // makes os.NewFile give it to the poller
	}
	if err != nil {
		unix.Close(ep)
		return os.NewSyscallError("epoll_ctl", err)
	}
	w.armed = true
	w.file = os.NewFile(uintptr(ep), "udp")
	if w.raw, err = w.file.SyscallConn(); err != nil {
		w.file.Close()
	}
	return err
}

// begin is called by a callback of raw.Read before it tries the socket: it takes a pending event away, so that later
// datagrams pass epoll by.
func (w *waiter) begin(ep uintptr) {
	if !w.armed {
		return
	}
	var events [1]unix.EpollEvent
	n, _ := unix.EpollWait(int(ep), events[:], 0)
	w.armed = n == 0
}

// wait is called by a callback that has found nothing to do and will return false: the next event wakes it. An event that
// came in between does so at once.
func (w *waiter) wait(ep uintptr) {
	w.armed = true
	// Fails only without memory or when the socket is gone; then the deadline or Close ends the wait.
	_ = unix.EpollCtl(int(ep), unix.EPOLL_CTL_MOD, w.fd, &unix.EpollEvent{Events: w.events | unix.EPOLLONESHOT})
}

// run calls f until it returns true, waiting in between.
func (s *socket) run(w *waiter, f func(ep uintptr) bool) error {
	err := w.raw.Read(f)
	if err != nil && s.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// close ends all calls that wait, waits for those that run, and closes the descriptor.
func (s *socket) close() error {
	if s.closed.Swap(true) {
		return net.ErrClosed
	}
	s.read.file.Close() // returns when nobody uses it any more
	s.write.file.Close()
	s.cleanup.Stop()
	return os.NewSyscallError("close", unix.Close(s.fd))
}

func (s *socket) setReadDeadline(t time.Time) error  { return s.deadline(&s.read, t) }
func (s *socket) setWriteDeadline(t time.Time) error { return s.deadline(&s.write, t) }

func (s *socket) deadline(w *waiter, t time.Time) error {
	err := w.file.SetReadDeadline(t) // waiting for an epoll instance is reading, in both directions
	if err != nil && s.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// Control implements syscall.RawConn.
func (s *socket) Control(f func(fd uintptr)) error {
	err := s.read.raw.Control(func(uintptr) { f(uintptr(s.fd)) })
	if err != nil && s.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// Read implements syscall.RawConn.
func (s *socket) Read(f func(fd uintptr) bool) error { return s.wrap(&s.read, f) }

// Write implements syscall.RawConn.
func (s *socket) Write(f func(fd uintptr) bool) error { return s.wrap(&s.write, f) }

func (s *socket) wrap(w *waiter, f func(fd uintptr) bool) error {
	return s.run(w, func(ep uintptr) bool {
		w.begin(ep)
		if f(uintptr(s.fd)) {
			return true
		}
		w.wait(ep)
		return false
	})
}

func (s *socket) rawConn() syscall.RawConn { return s }
