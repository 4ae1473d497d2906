package udp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxHeaders is how many messages one sendmmsg or recvmmsg takes (UIO_MAXIOV).
const maxHeaders = 1024

// maxVectors is how many pieces one message may have (UIO_MAXIOV).
const maxVectors = 1024

// ring is the memory of one call: what the kernel reads and writes besides the payload. A Conn
// pools rings, so the callbacks are bound once and a call allocates nothing.
type ring struct {
	conn *Conn
	pool *pool // where release puts it

	headers []unix.Mmsghdr
	names   []unix.RawSockaddrInet6
	control []byte // controlSize bytes for each header
	vectors []unix.Iovec
	starts  []cursor // writing: where in the batch each header begins; one more for the end
	spans   []int32  // writing: the first vector of each header; one more for the end

	// Operands of the callbacks, which run each time the socket becomes ready.
	count int           // headers in use
	done  int           // headers that the kernel took or filled
	errno syscall.Errno // why it stopped
	recv  func(ep uintptr) bool
	send  func(ep uintptr) bool
}

const controlSize = max(readControl, writeControl)

func newRing(c *Conn) *ring {
	r := &ring{conn: c}
	r.recv, r.send = r.receive, r.transmit
	r.grow(16)
	return r
}

// grow makes space for n headers. From then on, addresses and control data of a header stay at the
// same place.
func (r *ring) grow(n int) {
	n = min(n, maxHeaders)
	if n <= len(r.headers) {
		return
	}
	n = max(n, min(2*len(r.headers), maxHeaders))
	r.headers = make([]unix.Mmsghdr, n)
	r.names = make([]unix.RawSockaddrInet6, n)
	r.control = make([]byte, n*controlSize)
	r.starts = make([]cursor, n+1)
	r.spans = make([]int32, n+1)
}

func (r *ring) controlOf(i int) []byte {
	return r.control[i*controlSize : i*controlSize : (i+1)*controlSize]
}

// addVector appends b to the vectors. It extends the last one of this header when they are
// neighbours in memory.
func (r *ring) addVector(b []byte, first int) {
	if len(b) == 0 {
		return
	}
	p := unsafe.SliceData(b)
	if k := len(r.vectors); k > first {
		last := &r.vectors[k-1]
		if uintptr(unsafe.Pointer(last.Base))+uintptr(last.Len) == uintptr(unsafe.Pointer(p)) {
			last.SetLen(int(last.Len) + len(b))
			return
		}
	}
	v := unix.Iovec{Base: p}
	v.SetLen(len(b))
	r.vectors = append(r.vectors, v)
}

// release drops the references to the caller's buffers, so that a pooled ring keeps nothing alive.
func (r *ring) release() {
	clear(r.vectors)
	r.vectors = r.vectors[:0]
	r.pool.put(r)
}

// receive fills headers; false means wait until the socket is readable. ep is the epoll instance
// for reading.
func (r *ring) receive(ep uintptr) bool {
	s := r.conn.sys.socket
	s.read.Begin(ep)
	fd := uintptr(s.fd)
	for {
		var n uintptr
		var errno syscall.Errno
		if r.count == 1 {
			h := &r.headers[0]
			n, _, errno = unix.Syscall6(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&h.Hdr)), 0, 0,
				0, 0)
			if errno == 0 {
				h.Len, n = uint32(n), 1
			}
		} else {
			n, _, errno = unix.Syscall6(unix.SYS_RECVMMSG, fd,
				uintptr(unsafe.Pointer(&r.headers[0])), uintptr(r.count), 0, 0, 0)
		}
		switch errno {
		case 0:
			r.done, r.errno = int(n), 0
			return true
		case unix.EINTR:
		case unix.EAGAIN:
			// A queued ICMP error wakes readers, but a writer may already have consumed the error
			// code.
			if r.conn.config.Errors && r.conn.drainErrors(fd) > 0 {
				r.done, r.errno = 0, unix.EHOSTUNREACH
				return true
			}
			s.read.Wait(ep)
			return false
		default:
			r.done, r.errno = 0, errno
			return true
		}
	}
}

// transmit sends headers; false means wait until the socket is writable. ep is the epoll instance
// for writing.
func (r *ring) transmit(ep uintptr) bool {
	s := r.conn.sys.socket
	s.write.Begin(ep)
	fd := uintptr(s.fd)
	for r.done < r.count {
		var n uintptr
		var errno syscall.Errno
		if r.count-r.done == 1 {
			_, _, errno = unix.Syscall6(unix.SYS_SENDMSG, fd,
				uintptr(unsafe.Pointer(&r.headers[r.done].Hdr)), unix.MSG_NOSIGNAL, 0, 0, 0)
			n = 1
		} else {
			n, _, errno = unix.Syscall6(unix.SYS_SENDMMSG, fd,
				uintptr(unsafe.Pointer(&r.headers[r.done])), uintptr(r.count-r.done),
				unix.MSG_NOSIGNAL, 0, 0)
		}
		switch errno {
		case 0:
			r.done += int(n)
		case unix.EINTR:
		case unix.EAGAIN:
			if r.conn.config.noWait {
				r.errno = errno
				return true
			}
			s.write.Wait(ep)
			return false
		default:
			// sendmmsg fails only with the error of its first message: those before r.done are
			// sent.
			r.errno = errno
			return true
		}
	}
	return true
}
