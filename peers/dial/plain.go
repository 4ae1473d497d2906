package main

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// servePlain relays everything from portSource to the clients of portPlain: with one thread, one
// pipe and two blocking splices. This is the speed that a relay can reach on this machine, as a
// reference for the proxy.
func servePlain() error {
	l, err := listenBlocking(portPlain)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		client, _, err := unix.Accept(l)
		if err != nil {
			return err
		}
		go plainRelay(client)
	}
}

// listenBlocking returns a socket that Go's runtime does not poll.
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

func plainRelay(client int) {
	defer unix.Close(client)
	source, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(source)
	var p [2]int
	if unix.Connect(source, loopback4(portSource)) != nil ||
		unix.Pipe2(p[:], unix.O_CLOEXEC) != nil {
		return
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	const size = 1 << 20
	unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, size)
	for {
		n, err := unix.Splice(source, nil, p[1], nil, size, unix.SPLICE_F_MOVE)
		if err != nil || n == 0 {
			return
		}
		for n > 0 {
			w, err := unix.Splice(p[0], nil, client, nil, int(n), unix.SPLICE_F_MOVE)
			if err != nil || w == 0 {
				return
			}
			n -= w
		}
	}
}
