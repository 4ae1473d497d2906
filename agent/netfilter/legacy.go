package netfilter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// layout is where the parts of an entry of ip_tables or ip6_tables lie: struct ipt_entry and struct
// ip6t_entry of include/uapi/linux/netfilter_ipv4/ip_tables.h and netfilter_ipv6/ip6_tables.h.
type layout struct {
	names              string // file with the names of the tables that there are
	domain, level      int    // of the socket, of its options
	address            int    // length
	inverted           int    // offset of the flags that invert a test
	target, next, more int    // offsets of target_offset, next_offset and of what follows the entry
}

var layouts = []layout{
	{names: "ip_tables_names", domain: unix.AF_INET, level: unix.SOL_IP, address: 4, inverted: 83,
		target: 88, next: 90, more: 112},
	{names: "ip6_tables_names", domain: unix.AF_INET6, level: unix.SOL_IPV6, address: 16,
		inverted: 132, target: 140, next: 142, more: 168},
}

// The socket options of both: IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES.
const (
	getInfo    = 64
	getEntries = 65
)

// Flags that invert a test.
const (
	invertIn  = 0x01
	invertOut = 0x02
	invertSrc = 0x08
	invertDst = 0x10
)

// legacy does for the tables of iptables-legacy what nftables does.
func (s *Scope) legacy() (string, error) {
	for i := range layouts {
		l := &layouts[i]
		// The question alone would make a table that is not there.
		names, err := os.ReadFile("/proc/thread-self/net/" + l.names)
		if errors.Is(err, os.ErrNotExist) ||
			err == nil && !slices.Contains(strings.Fields(string(names)), "nat") {
			continue
		}
		if err != nil {
			return "", err
		}
		found, err := s.legacyTable(l)
		if err != nil {
			return "", fmt.Errorf("read the table nat of iptables-legacy: %w", err)
		}
		if found {
			return "table nat of iptables-legacy", nil
		}
	}
	return "", nil
}

func (s *Scope) legacyTable(l *layout) (bool, error) {
	fd, err := unix.Socket(l.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	// struct ipt_getinfo: name, valid_hooks, hook_entry[5], underflow[5], num_entries, size
	info := make([]byte, 84)
	copy(info, "nat")
	if err := getsockopt(fd, l.level, getInfo, info); err != nil {
		return false, err
	}
	word := func(at int) int { return int(binary.NativeEndian.Uint32(info[at:])) }
	// struct ipt_get_entries: name, size, entries
	answer := make([]byte, 40+word(80))
	copy(answer, "nat")
	binary.NativeEndian.PutUint32(answer[32:], uint32(word(80)))
	if err := getsockopt(fd, l.level, getEntries, answer); err != nil {
		return false, err
	}
	t := legacyTable{layout: l, scope: s, entries: answer[40:], seen: map[int]bool{}}
	for _, hook := range []int{unix.NF_INET_PRE_ROUTING, unix.NF_INET_POST_ROUTING} {
		if t.chain(word(36+4*hook), word(56+4*hook)) {
			return true, nil
		}
	}
	return false, nil
}

func getsockopt(fd, level, option int, b []byte) error {
	size := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

type legacyTable struct {
	*layout
	scope   *Scope
	entries []byte
	seen    map[int]bool // chains, by where they begin
}

// chain looks at the entries from one place to another, or to the end of the chain, and at the
// chains that they jump to, each once. What does not look like an entry may translate.
func (t *legacyTable) chain(at, last int) bool {
	t.seen[at] = true
	for at >= 0 && at+t.more <= len(t.entries) {
		e := t.entries[at:]
		target := int(binary.NativeEndian.Uint16(e[t.target:]))
		next := int(binary.NativeEndian.Uint16(e[t.next:]))
		if next <= 0 || target < t.more || target+36 > next || next > len(e) {
			return true
		}
		name := text(e[target+2 : target+31])
		if name == "ERROR" { // the head of the next chain
			return false
		}
		if c := t.conditions(e[:target]); !t.scope.misses(&c) && t.leads(name, e[target:next]) {
			return true
		}
		if at == last {
			return false
		}
		at += next
	}
	return at != len(t.entries)
}

// leads reports whether a target may translate, or leads to one that may.
func (t *legacyTable) leads(name string, target []byte) bool {
	if name != "" {
		var o outcome
		o.target(name)
		return o.translates || o.masquerades && !t.scope.Masquerade
	}
	verdict := int(int32(binary.NativeEndian.Uint32(target[32:])))
	return verdict >= 0 && !t.seen[verdict] && t.chain(verdict, -1)
}

// conditions reads the addresses and interfaces of an entry, and its matches.
func (t *legacyTable) conditions(e []byte) (c conditions) {
	n, inverted := t.address, e[t.inverted]
	address := func(at int, flag byte) netip.Prefix {
		if inverted&flag != 0 {
			return netip.Prefix{}
		}
		mask := e[at+2*n : at+3*n]
		if bytes.Count(mask, []byte{0}) == n {
			return netip.Prefix{} // any
		}
		return prefix(content{bytes: n, mask: mask}, e[at:at+n])
	}
	c.src, c.dst = address(0, invertSrc), address(n, invertDst)
	device := func(at int, flag byte) string {
		// the mask of a whole name covers its end
		name := text(e[at : at+16])
		if inverted&flag != 0 || len(name) > 14 || e[at+32+len(name)] == 0 {
			return ""
		}
		return name
	}
	c.in, c.out = device(4*n, invertIn), device(4*n+16, invertOut)
	for at := t.more; at+32 <= len(e); {
		size := int(binary.NativeEndian.Uint16(e[at:]))
		if size < 32 || at+size > len(e) {
			break
		}
		c.match(text(e[at+2:at+31]), uint32(e[at+31]), e[at+32:at+size])
		at += size
	}
	return c
}

func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
