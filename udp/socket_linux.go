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

	"github.com/weirnet/weir/internal/poller"
)

// socket is a descriptor that the runtime's poller does not watch, with a poller of its own for
// each direction.
type socket struct {
	fd          int
	read, write poller.Poller
	closed      atomic.Bool
	cleanup     runtime.Cleanup
}

// newSocket duplicates the descriptor of pc. The caller closes pc.
func newSocket(pc syscall.Conn) (*socket, error) {
	raw, err := pc.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if e := raw.Control(func(old uintptr) {
		fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	}); e != nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("duplicate the descriptor: %w", err)
	}
	s := &socket{fd: fd}
	if err = s.read.Open(fd, unix.EPOLLIN); err == nil {
		if err = s.write.Open(fd, unix.EPOLLOUT); err != nil {
			s.read.Close()
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	s.cleanup = runtime.AddCleanup(s, func(fd int) { unix.Close(fd) }, fd)
	return s, nil
}

// run calls f until it returns true, waiting in between.
func (s *socket) run(w *poller.Poller, f func(ep uintptr) bool) error {
	err := w.Run(f)
	if err != nil && s.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// close wakes all calls that wait, waits until they have returned, and closes the descriptor.
func (s *socket) close() error {
	if s.closed.Swap(true) {
		return net.ErrClosed
	}
	s.read.Close() // returns when no call uses it any more
	s.write.Close()
	s.cleanup.Stop()
	return os.NewSyscallError("close", unix.Close(s.fd))
}

func (s *socket) setReadDeadline(t time.Time) error  { return s.deadline(&s.read, t) }
func (s *socket) setWriteDeadline(t time.Time) error { return s.deadline(&s.write, t) }

func (s *socket) deadline(w *poller.Poller, t time.Time) error {
	err := w.SetDeadline(t)
	if err != nil && s.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// Control implements syscall.RawConn.
func (s *socket) Control(f func(fd uintptr)) error {
	err := s.read.Control(func() { f(uintptr(s.fd)) })
	if err != nil && s.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// Read implements syscall.RawConn.
func (s *socket) Read(f func(fd uintptr) bool) error { return s.wrap(&s.read, f) }

// Write implements syscall.RawConn.
func (s *socket) Write(f func(fd uintptr) bool) error { return s.wrap(&s.write, f) }

func (s *socket) wrap(w *poller.Poller, f func(fd uintptr) bool) error {
	return s.run(w, func(ep uintptr) bool {
		w.Begin(ep)
		if f(uintptr(s.fd)) {
			return true
		}
		w.Wait(ep)
		return false
	})
}

func (s *socket) rawConn() (syscall.RawConn, error) { return s, nil }
