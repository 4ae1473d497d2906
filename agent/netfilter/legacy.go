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
	proto              int    // offset of the protocol
	inverted           int    // offset of the flags that invert a test, behind the other flags
	target, next, more int    // offsets of target_offset, next_offset and of what follows the entry
}

var layouts = []layout{
	{names: "ip_tables_names", domain: unix.AF_INET, level: unix.SOL_IP, address: 4, proto: 80,
		inverted: 83, target: 88, next: 90, more: 112},
	{names: "ip6_tables_names", domain: unix.AF_INET6, level: unix.SOL_IPV6, address: 16,
		proto: 128, inverted: 132, target: 140, next: 142, more: 168},
}

// The socket options of both: IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES.
const (
	getInfo    = 64
	getEntries = 65
)

// flagFragment asks for later fragments; of ip6_tables it says that there is a protocol.
const flagFragment = 0x01

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
		t, err := s.readLegacy(&layouts[i], "nat")
		if err != nil {
			return "", err
		}
		if t == nil {
			continue
		}
		for _, hook := range []int{unix.NF_INET_PRE_ROUTING, unix.NF_INET_POST_ROUTING} {
			if t.chain(t.first[hook], t.last[hook]) {
				return "table nat of iptables-legacy", nil
			}
		}
	}
	return "", nil
}

// readLegacy reads a table; nil if it is not there.
func (s *Scope) readLegacy(l *layout, name string) (*legacyTable, error) {
	// The question alone would make a table that is not there.
	names, err := os.ReadFile("/proc/thread-self/net/" + l.names)
	if errors.Is(err, os.ErrNotExist) ||
		err == nil && !slices.Contains(strings.Fields(string(names)), name) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t := &legacyTable{layout: l, scope: s, seen: map[int]bool{}}
	if err := t.read(name); err != nil {
		return nil, fmt.Errorf("read the table %s of iptables-legacy: %w", name, err)
	}
	return t, nil
}

func (t *legacyTable) read(name string) error {
	fd, err := unix.Socket(t.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// struct ipt_getinfo: name, valid_hooks, hook_entry[5], underflow[5], num_entries, size
	info := make([]byte, 84)
	copy(info, name)
	if err := getsockopt(fd, t.level, getInfo, info); err != nil {
		return err
	}
	word := func(at int) int { return int(binary.NativeEndian.Uint32(info[at:])) }
	for hook := range t.first {
		t.first[hook], t.last[hook] = word(36+4*hook), word(56+4*hook)
	}
	// struct ipt_get_entries: name, size, entries
	answer := make([]byte, 40+word(80))
	copy(answer, name)
	binary.NativeEndian.PutUint32(answer[32:], uint32(word(80)))
	if err := getsockopt(fd, t.level, getEntries, answer); err != nil {
		return err
	}
	t.entries = answer[40:]
	return nil
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
	scope       *Scope
	entries     []byte
	first, last [unix.NF_INET_NUMHOOKS]int // entries of the chains of hooks; the last is the policy
	seen        map[int]bool               // chains, by where they begin
}

// entry returns what an entry asks, its target and where the next one is; ok is false for what does
// not look like an entry.
func (t *legacyTable) entry(at int) (asks, target []byte, next int, ok bool) {
	if at < 0 || at+t.more > len(t.entries) {
		return nil, nil, 0, false
	}
	e := t.entries[at:]
	begins := int(binary.NativeEndian.Uint16(e[t.target:]))
	size := int(binary.NativeEndian.Uint16(e[t.next:]))
	if size <= 0 || begins < t.more || begins+36 > size || size > len(e) {
		return nil, nil, 0, false
	}
	return e[:begins], e[begins:size], at + size, true
}

// targetName is the name of a target, "" for one that is a verdict.
func targetName(target []byte) string { return text(target[2:31]) }

// errorTarget is the target of the head of each chain of a user, and of the end of a table.
const errorTarget = "ERROR"

// targetVerdict is that of a target without a name: where a chain begins that it jumps to, or a
// negative number.
func targetVerdict(target []byte) int { return int(int32(binary.NativeEndian.Uint32(target[32:]))) }

// chain looks at the entries from one place to another, or to the end of the chain, and at the
// chains that they jump to, each once. What does not look like an entry may translate.
func (t *legacyTable) chain(at, last int) bool {
	t.seen[at] = true
	for at != len(t.entries) {
		asks, target, next, ok := t.entry(at)
		if !ok {
			return true
		}
		name := targetName(target)
		if name == errorTarget { // the head of the next chain
			return false
		}
		if c := t.conditions(asks); !t.scope.misses(&c) && t.leads(name, target) {
			return true
		}
		if at == last {
			return false
		}
		at = next
	}
	return false
}

// leads reports whether a target may translate, or leads to one that may.
func (t *legacyTable) leads(name string, target []byte) bool {
	if name != "" {
		var o outcome
		o.target(name)
		return o.translates || o.masquerades && !t.scope.Masquerade
	}
	to := targetVerdict(target)
	return to >= 0 && !t.seen[to] && t.chain(to, -1)
}

// conditions reads the addresses and interfaces of an entry, and its matches.
func (t *legacyTable) conditions(e []byte) (c conditions) {
	n, inverted := t.address, e[t.inverted]
	c.more = inverted != 0 || binary.NativeEndian.Uint16(e[t.proto:]) != 0 ||
		e[t.inverted-1]&flagFragment != 0
	address := func(at int, flag byte) netip.Prefix {
		mask := e[at+2*n : at+3*n]
		if inverted&flag != 0 || bytes.Count(mask, []byte{0}) == n {
			return netip.Prefix{} // any
		}
		p := prefix(content{bytes: n, mask: mask}, e[at:at+n])
		c.more = c.more || !p.IsValid()
		return p
	}
	c.src, c.dst = address(0, invertSrc), address(n, invertDst)
	device := func(at int, flag byte) (exact, begins string) {
		if inverted&flag != 0 {
			return "", ""
		}
		name, covered := text(e[at:at+16]), text(e[at+32:at+48])
		if len(name) < len(covered) { // the mask of a whole name covers its end
			return name, name
		}
		return "", name[:len(covered)] // the rest is a +
	}
	c.in, c.inBegins = device(4*n, invertIn)
	c.out, c.outBegins = device(4*n+16, invertOut)
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
