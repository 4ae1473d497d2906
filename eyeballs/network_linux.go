package eyeballs

import (
	"encoding/hex"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// source asks the kernel for the source address towards dst by connecting a UDP
// socket, which sends nothing. It returns an invalid address if there is no route.
func source(dst netip.Addr) netip.Addr {
	var to syscall.Sockaddr
	family := syscall.AF_INET6
	if dst = dst.Unmap(); dst.Is4() {
		family = syscall.AF_INET
		to = &syscall.SockaddrInet4{Port: 53, Addr: dst.As4()}
	} else {
		if dst.Zone() != "" {
			return netip.Addr{} // answers of servers carry no zone
		}
		to = &syscall.SockaddrInet6{Port: 53, Addr: dst.As16()}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return netip.Addr{}
	}
	defer syscall.Close(fd)
	if err := syscall.Connect(fd, to); err != nil {
		return netip.Addr{}
	}
	from, err := syscall.Getsockname(fd)
	if err != nil {
		return netip.Addr{}
	}
	switch a := from.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrFrom4(a.Addr)
	case *syscall.SockaddrInet6:
		return netip.AddrFrom16(a.Addr)
	}
	return netip.Addr{}
}

// deprecated lists the IPv6 addresses of this host whose preferred lifetime is
// over: flag 0x20 in /proc/net/if_inet6.
func deprecated() map[netip.Addr]bool {
	text, err := os.ReadFile("/proc/net/if_inet6")
	if err != nil {
		return nil
	}
	return parseIfInet6(string(text))
}

func parseIfInet6(text string) map[netip.Addr]bool {
	var list map[netip.Addr]bool
	for line := range strings.Lines(text) {
		f := strings.Fields(line) // address, index, prefix length, scope, flags, name
		if len(f) < 6 {
			continue
		}
		raw, err := hex.DecodeString(f[0])
		flags, err2 := strconv.ParseUint(f[4], 16, 32)
		addr, ok := netip.AddrFromSlice(raw)
		if err != nil || err2 != nil || !ok || flags&0x20 == 0 {
			continue
		}
		if list == nil {
			list = map[netip.Addr]bool{}
		}
		list[addr] = true
	}
	return list
}
