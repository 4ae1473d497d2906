package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/packet/build"
)

// batch is the number of frames of one system call.
const batch = 32

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   uint32
}

// sender sends UDP frames of 60 bytes from a packet socket, past the queueing discipline: the
// receiver's work is done in the same system call.
type sender struct {
	fd     int
	frames [batch][60]byte
	iov    [batch]unix.Iovec
	msgs   [batch]mmsghdr
	next   uint32 // flow
	back   bool   // from the server to the client
}

// newSender must run on the thread that sends, in the client's namespace.
func newSender(from, to net.HardwareAddr) (*sender, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return nil, err
	}
	s := &sender{fd: fd}
	i, err := net.InterfaceByName("eth0")
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0, Ifindex: i.Index})
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	b, err := build.Packet(build.IPv4{Src: netip.MustParseAddr("10.99.0.1"),
		Dst: netip.MustParseAddr(serverAddr)},
		build.UDP{SrcPort: 1024, DstPort: 9, NoChecksum: true}, build.Data(make([]byte, 18)))
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	for k := range s.frames {
		f := &s.frames[k]
		copy(f[:], to)
		copy(f[6:], from)
		f[12] = 0x08
		copy(f[14:], b)
		s.iov[k].Base = &f[0]
		s.iov[k].SetLen(len(f))
		s.msgs[k].hdr.Iov = &s.iov[k]
		s.msgs[k].hdr.Iovlen = 1
	}
	return s, nil
}

// flow writes the source of flow n into frame k: an address and a port, 8192 flows from each
// address, fewer than a source may have half-open.
func (s *sender) flow(k int, n uint32) {
	f := s.frames[k][:]
	address, port := f[28:], f[34:]
	if s.back {
		address, port = f[32:], f[36:]
	}
	binary.BigEndian.PutUint16(address, uint16(1+n>>13))
	binary.BigEndian.PutUint16(port, uint16(1024+n&0x1fff))
	f[24], f[25] = 0, 0
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(f[24:], ^uint16(sum&0xffff+sum>>16))
}

// turn makes the frames those of the way back, which pass the queueing discipline and the hook
// before it.
func (s *sender) turn() error {
	s.back = true
	for k := range s.frames {
		f := &s.frames[k]
		for i := range 4 {
			f[26+i], f[30+i] = f[30+i], f[26+i]
		}
		f[34], f[35], f[36], f[37] = f[36], f[37], f[34], f[35]
	}
	return unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 0)
}

// batch sends all frames once and returns how many were taken.
func (s *sender) batch() (int, error) {
	sent, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(s.fd),
		uintptr(unsafe.Pointer(&s.msgs[0])), batch, 0, 0, 0)
	if errno == unix.ENOBUFS {
		return 0, nil
	}
	if errno != 0 {
		return 0, fmt.Errorf("send frames: %w", errno)
	}
	return int(sent), nil
}

// send sends for a while over flows in turn, 0 meaning that no packet has the flow of another, and
// returns the CPU time per packet in ns.
func (s *sender) send(flows uint32, d time.Duration) (float64, error) {
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &before); err != nil {
		return 0, err
	}
	n := 0
	for stop := time.Now().Add(d); time.Now().Before(stop); {
		for range 16 {
			for k := range s.frames {
				if flows != 1 {
					s.flow(k, s.next)
					if s.next++; flows != 0 && s.next >= flows {
						s.next = 0
					}
				}
			}
			sent, err := s.batch()
			if err != nil {
				return 0, err
			}
			n += sent
		}
	}
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &after); err != nil {
		return 0, err
	}
	took := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	return float64(took) / float64(max(1, n)), nil
}

func (s *sender) close() { unix.Close(s.fd) }

// flushConntrack empties the conntrack table of the namespace: nfnetlink's IPCTNL_MSG_CT_DELETE
// without a tuple.
func flushConntrack() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	b := make([]byte, 20)
	binary.NativeEndian.PutUint32(b, 20)
	binary.NativeEndian.PutUint16(b[4:], 1<<8|2)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	n, _, err := unix.Recvfrom(fd, make([]byte, 4096), 0)
	if err == nil && n < 20 {
		err = fmt.Errorf("flush conntrack: an answer of %d bytes", n)
	}
	return err
}

// pin keeps the calling thread on one CPU.
func pin(cpu int) error { return pinTask(0, cpu) }
