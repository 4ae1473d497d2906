package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipeSize bounds what one splice moves, in bytes. The kernel may grant less to a user with many
// pipes.
const pipeSize = 1 << 20

// pipe carries data between two sockets inside the kernel.
type pipe struct{ r, w int }

// pipes holds a few empty pipes for reuse.
var pipes = make(chan pipe, 32)

func acquirePipe() (pipe, error) {
	select {
	case p := <-pipes:
		return p, nil
	default:
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return pipe{}, os.NewSyscallError("pipe2", err)
	}
	unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, pipeSize)
	return pipe{fds[0], fds[1]}, nil
}

// release keeps an empty pipe for reuse, or closes it.
func (p pipe) release() {
	select {
	case pipes <- p:
	default:
		p.close()
	}
}

func (p pipe) close() {
	unix.Close(p.r)
	unix.Close(p.w)
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// move moves everything from src to dst: by splice between two stream sockets, through memory
// between others or when there are no descriptors for a pipe. New connections fail then, but
// existing ones must not.
func (t *tunnel) move(dst, src net.Conn) error {
	from, ok := rawConn(src)
	to, ok2 := rawConn(dst)
	if !ok || !ok2 {
		return t.copyLoop(dst, src)
	}
	for {
		n, p, err := spliceIn(from)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EMFILE),
			errors.Is(err, unix.ENFILE):
			return t.copyLoop(dst, src)
		case err != nil:
			if t.extend(err, dst, src) {
				continue
			}
			return err
		case n == 0:
			return nil
		}
		for n > 0 {
			w, err := spliceOut(to, p, n)
			n -= w
			if w > 0 {
				t.count(w)
			}
			if err != nil && !t.extend(err, dst, src) {
				p.close() // it may still hold data
				return err
			}
		}
		p.release()
	}
}

// rawConn gives access to the descriptor of a stream socket.
func rawConn(c net.Conn) (syscall.RawConn, bool) {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nil, false
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	return raw, err == nil
}

// spliceIn waits for data and moves what is there into a pipe. It holds no pipe while it waits. 0
// bytes without an error mean the end of the data.
func spliceIn(from syscall.RawConn) (n int64, p pipe, err error) {
	var failed error
	err = from.Read(func(fd uintptr) bool {
		if p, failed = acquirePipe(); failed != nil {
			return true
		}
		n, failed = splice(int(fd), p.w, pipeSize)
		if failed != nil || n == 0 {
			p.release()
		}
		return failed != unix.EAGAIN
	})
	if failed != nil && err == nil {
		err = os.NewSyscallError("splice", failed)
	}
	return max(n, 0), p, err
}

func splice(from, to int, size int64) (int64, error) {
	for {
		n, err := unix.Splice(from, nil, to, nil, int(size),
			unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// spliceOut moves up to n bytes from the pipe to a socket.
func spliceOut(to syscall.RawConn, p pipe, n int64) (moved int64, err error) {
	var failed error
	err = to.Write(func(fd uintptr) bool {
		moved, failed = splice(p.r, int(fd), n)
		return failed != unix.EAGAIN
	})
	if failed != nil && err == nil {
		err = os.NewSyscallError("splice", failed)
	}
	return max(moved, 0), err
}
