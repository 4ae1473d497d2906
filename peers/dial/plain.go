package main

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// servePlain relays everything that comes to portPlain from portSource and does
// nothing else: a thread, a pipe, two blocking splices. It is what a relay can
// reach on this machine, for the proxy to be compared with.
func servePlain() error {
	l, err := listenBlocking(portPlain)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		near, _, err := unix.Accept(l)
		if err != nil {
			return err
		}
		go plainRelay(near)
	}
}

// listenBlocking returns a socket that Go's poller knows nothing of.
func listenBlocking(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, loopback4(port)); err != nil {
		return 0, err
	}
	return fd, unix.Listen(fd, 16)
}

func loopback4(port int) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte(net.IPv4(127, 0, 0, 1).To4())}
}

func plainRelay(near int) {
	defer unix.Close(near)
	far, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(far)
	var p [2]int
	if unix.Connect(far, loopback4(portSource)) != nil || unix.Pipe2(p[:], unix.O_CLOEXEC) != nil {
		return
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	const size = 1 << 20
	unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, size)
	for {
		n, err := unix.Splice(far, nil, p[1], nil, size, unix.SPLICE_F_MOVE)
		if err != nil || n == 0 {
			return
		}
		for n > 0 {
			w, err := unix.Splice(p[0], nil, near, nil, int(n), unix.SPLICE_F_MOVE)
			if err != nil || w == 0 {
				return
			}
			n -= w
		}
	}
}
