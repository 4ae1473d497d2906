package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
)

// batch is the number of frames of one system call.
const batch = 32

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   uint32
}

// generator makes the next IP packet of an attack.
type generator func(r *rand.Rand) []byte

// sent is what a flood came to.
type sent struct {
	packets int
	took    time.Duration
	// cost is the CPU time of one packet, with what the receiver does with it: the veth's other end
	// is served by the thread that sends.
	cost time.Duration
}

// flood sends what next makes out of an interface of a node at a rate, until a time, and one batch
// in any case. The machine may be so busy that the time is over before it begins. The queueing
// discipline is passed by.
func flood(from *nstest.Node, iface string, to net.HardwareAddr, rate int, next generator,
	until time.Time) (s sent, err error) {
	err = from.Do(func() error {
		i, err := net.InterfaceByName(iface)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: i.Index}); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
			return err
		}
		header := append(append([]byte(nil), to...), i.HardwareAddr...)
		s, err = send(fd, header, rate, next, until)
		return err
	})
	return s, err
}

// send is the loop of flood. It must run on a thread of its own in the sender's namespace.
func send(fd int, addresses []byte, rate int, next generator, until time.Time) (s sent, err error) {
	var iov [batch]unix.Iovec
	var msgs [batch]mmsghdr
	for k := range msgs {
		msgs[k].hdr.Iov, msgs[k].hdr.Iovlen = &iov[k], 1
	}
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &before); err != nil {
		return s, err
	}
	random := rand.New(rand.NewPCG(1, uint64(rate)))
	var inKernel time.Duration
	began := time.Now()
	for now := began; now.Before(until) || s.packets == 0; now = time.Now() {
		if s.packets+batch > int(now.Sub(began).Seconds()*float64(rate)) {
			time.Sleep(200 * time.Microsecond)
			continue
		}
		for k := range iov {
			frame := frameOf(addresses, next(random))
			iov[k].Base = &frame[0]
			iov[k].SetLen(len(frame))
		}
		call := time.Now()
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd),
			uintptr(unsafe.Pointer(&msgs[0])),
			batch, 0, 0, 0)
		inKernel += time.Since(call)
		if errno != 0 && errno != unix.ENOBUFS {
			return s, fmt.Errorf("send frames: %w", errno)
		}
		if errno == 0 {
			s.packets += int(n)
		}
	}
	s.took = time.Since(began)
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &after); err != nil {
		return s, err
	}
	s.cost = time.Duration(after.Stime.Nano()-before.Stime.Nano()) / time.Duration(max(1,
		s.packets))
	return s, nil
}

func frameOf(addresses, ip []byte) []byte {
	etherType := packet.EtherIPv4
	if ip[0]>>4 == 6 {
		etherType = packet.EtherIPv6
	}
	frame := make([]byte, 0, 14+len(ip))
	frame = append(frame, addresses...)
	return append(append(frame, byte(etherType>>8), byte(etherType)), ip...)
}
