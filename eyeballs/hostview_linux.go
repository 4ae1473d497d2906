package eyeballs

import (
	"encoding/hex"
	"hash"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// source asks the kernel for the source address towards dst: it connects a UDP socket, which sends
// nothing. It returns an invalid address if there is no route.
func source(dst netip.Addr) netip.Addr {
	var to syscall.Sockaddr
	family := syscall.AF_INET6
	if dst = dst.Unmap(); dst.Is4() {
		family = syscall.AF_INET
		to = &syscall.SockaddrInet4{Port: 53, Addr: dst.As4()}
	} else {
		if dst.Zone() != "" {
			return netip.Addr{} // addresses from DNS have no zone
		}
		to = &syscall.SockaddrInet6{Port: 53, Addr: dst.As16()}
	}
	fd, err := syscall.Socket(family,
		syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
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

// procLimit bounds what is read of a file in /proc, in bytes. A router may hold all routes of the
// Internet: default and local routes come first. A host with many interfaces has more link-local
// addresses of IPv6, in any order.
const procLimit = 64 << 10

func readProc(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, procLimit))
	return string(text)
}

// families finds which families this host has. It reads /proc, not netlink: a netlink dump waits
// for a lock that any process holds while it configures interfaces, sometimes for seconds. A dial
// must not wait for that.
func (v *hostView) families(h hash.Hash) {
	v.v4 = v.route4.IsValid() && !v.route4.IsLoopback() ||
		parseRoute(readProc("/proc/net/route"), h)
	v.v6, v.deprecated = parseIfInet6(readProc("/proc/net/if_inet6"), h)
	v.v6 = v.v6 || v.route6.IsGlobalUnicast()
}

// parseRoute reports whether there is an IPv4 route other than loopback's, and adds the routes to
// the hash. Two networks with the same private addresses mostly differ in their routes.
func parseRoute(text string, h hash.Hash) (any bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line) // interface, destination, gateway, flags, ...
		if len(f) < 8 || f[0] == "Iface" || f[0] == "lo" {
			continue
		}
		flags, err := strconv.ParseUint(f[3], 16, 16)
		if err != nil || flags&syscall.RTF_UP == 0 || flags&syscall.RTF_REJECT != 0 {
			continue
		}
		any = true
		hashField(h, []byte(f[1]+f[2]))
	}
	return any
}

// Flags of an address in /proc/net/if_inet6.
const (
	dadFailed  = 0x08
	deprecated = 0x20
	tentative  = 0x40
)

// parseIfInet6 reports whether there is an IPv6 address that is neither loopback nor link-local. It
// returns those addresses whose preferred lifetime is over (deprecated, RFC 4862 section 5.5.4).
func parseIfInet6(text string, h hash.Hash) (any bool, old map[netip.Addr]bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line) // address, index, prefix length, scope, flags, name
		if len(f) < 6 {
			continue
		}
		raw, err := hex.DecodeString(f[0])
		flags, err2 := strconv.ParseUint(f[4], 16, 32)
		addr, ok := netip.AddrFromSlice(raw)
		if err != nil || err2 != nil || !ok || addr.IsLoopback() || addr.IsLinkLocalUnicast() ||
			flags&(dadFailed|tentative) != 0 {
			continue
		}
		any = true
		hashField(h, raw)
		if flags&deprecated != 0 {
			if old == nil {
				old = map[netip.Addr]bool{}
			}
			old[addr] = true
		}
	}
	return any, old
}
