package proxy

import "golang.org/x/sys/unix"

// forbidBroadcast makes connect fail with EACCES for every address that the kernel treats as a
// broadcast address. Package net allows broadcasts on each UDP socket.
func forbidBroadcast(fd uintptr) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 0)
}
