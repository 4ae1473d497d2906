package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func rawRead(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, err := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])),
			uintptr(len(b)))
		if err != unix.EINTR {
			return int(n), err
		}
	}
}

func rawWrite(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, err := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])),
			uintptr(len(b)))
		if err != unix.EINTR {
			return int(n), err
		}
	}
}
