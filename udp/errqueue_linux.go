package udp

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReadErrors moves ICMP errors to dst and returns how many. It does not wait. Config.Errors must be
// set.
func (c *Conn) ReadErrors(dst []ICMPError) (int, error) {
	if n := c.sys.errors.take(dst); n > 0 {
		return n, nil
	}
	if err := c.sys.Control(func(fd uintptr) { c.drainErrors(fd) }); err != nil {
		return 0, err
	}
	return c.sys.errors.take(dst), nil
}

// drainErrors takes all errors from the socket's error queue, and returns their number.
func (c *Conn) drainErrors(fd uintptr) int {
	found := 0
	for {
		var name unix.RawSockaddrInet6
		var control [256]byte
		h := unix.Msghdr{Name: (*byte)(unsafe.Pointer(&name)), Namelen: unix.SizeofSockaddrInet6,
			Control: &control[0]}
		h.SetControllen(len(control))
		_, _, errno := unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&h)),
			unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return found
		}
		e, ok := parseError(control[:min(int(h.Controllen), len(control))], &c.sys.zones)
		if !ok {
			continue // something else that uses the queue, such as transmit time stamps
		}
		e.Addr = getName(&name, h.Namelen, &c.sys.zones)
		found++
		c.stats.errorsQueued.Add(1)
		if !c.sys.errors.add(e) {
			c.stats.errorsDropped.Add(1)
		}
	}
}

// parseError finds the extended error in control data: struct sock_extended_err, followed by the
// offender's address.
func parseError(b []byte, z *zones) (e ICMPError, ok bool) {
	for {
		level, typ, data, rest, more := nextControl(b)
		if !more {
			return ICMPError{}, false
		}
		b = rest
		v4 := level == unix.IPPROTO_IP && typ == unix.IP_RECVERR
		v6 := level == unix.IPPROTO_IPV6 && typ == unix.IPV6_RECVERR
		const size = 16 // struct sock_extended_err
		if !v4 && !v6 || len(data) < size {
			continue
		}
		origin := data[4]
		if origin != unix.SO_EE_ORIGIN_LOCAL && origin != unix.SO_EE_ORIGIN_ICMP &&
			origin != unix.SO_EE_ORIGIN_ICMP6 {
			continue
		}
		errno := syscall.Errno(binary.NativeEndian.Uint32(data))
		e = ICMPError{Errno: errno, Type: data[5], Code: data[6]}
		if errno == unix.EMSGSIZE {
			e.MTU = int(binary.NativeEndian.Uint32(data[8:])) // ee_info
		}
		if origin != unix.SO_EE_ORIGIN_LOCAL {
			e.From = offender(data[size:], z)
		}
		return e, true
	}
}

func offender(b []byte, z *zones) netip.Addr {
	var name unix.RawSockaddrInet6
	n := copy((*[unix.SizeofSockaddrInet6]byte)(unsafe.Pointer(&name))[:], b)
	return getName(&name, uint32(n), z).Addr()
}
