package nat

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// Forward is an element of [[forward]]: ports of the host that lead to another host behind it.
type Forward struct {
	Proto packet.Proto // TCP, UDP or SCTP
	// The first port, and the address, unspecified for all of the host's own.
	Listen netip.AddrPort
	To     netip.AddrPort // where the first port leads
	Count  int            // of ports
}

// ForwardFile is an element of [[forward]] as it is written.
type ForwardFile struct {
	Listen string `toml:"listen"`
	Proto  string `toml:"proto"`
	To     string `toml:"to"`
}

// maxForwarded is how many ports may be forwarded in all: the kernel's map holds those of pods, too
// (bpf/lib/pod.h).
const maxForwarded = 32768

// Has reports whether a port is one of those forwarded, at any address.
func (f Forward) Has(proto packet.Proto, port uint16) bool {
	first := int(f.Listen.Port())
	return f.Proto == proto && int(port) >= first && int(port) < first+f.Count
}

// meets returns the first port that both forward, at the same address.
func (f Forward) meets(o Forward) (port int, both bool) {
	port = int(max(f.Listen.Port(), o.Listen.Port()))
	return port, f.Listen.Addr() == o.Listen.Addr() && f.Has(o.Proto, uint16(port)) &&
		o.Has(f.Proto, uint16(port))
}

// address names the address that is listened at.
func (f Forward) address() string {
	if f.Listen.Addr().IsUnspecified() {
		return "any address"
	}
	return f.Listen.Addr().String()
}

// Ports are the ports as the engine knows them.
func (f Forward) Ports() (all []forward.Published) {
	for i := range f.Count {
		all = append(all, forward.Published{Proto: f.Proto, Host: after(f.Listen, i),
			Pod: after(f.To, i)})
	}
	return all
}

func after(a netip.AddrPort, n int) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr(), a.Port()+uint16(n))
}

// forward reads an element.
func (f ForwardFile) forward() (Forward, error) {
	one := Forward{Proto: packet.ProtoTCP}
	if f.Proto != "" {
		var err error
		one.Proto, err = packet.ParseProto(f.Proto)
		if err != nil || !slices.Contains(ported, one.Proto) {
			return one, fmt.Errorf(`proto: %q is not "tcp", "udp" or "sctp"`, f.Proto)
		}
	}
	to, last, err := parseEnd(f.To)
	if err != nil {
		return one, fmt.Errorf("to: %w", err)
	}
	switch a := to.Addr(); {
	case !a.IsValid():
		return one, fmt.Errorf(`to: %q has no address; write "10.0.5.9:443"`, f.To)
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast():
		return one, fmt.Errorf("to: %s is not an address of another host that packets are routed "+
			"to", a)
	}
	one.To = to
	listen, lastListen, err := parseEnd(f.Listen)
	if err != nil {
		return one, fmt.Errorf("listen: %w", err)
	}
	a := listen.Addr()
	if !a.IsValid() {
		if a = netip.IPv6Unspecified(); to.Addr().Is4() {
			a = netip.IPv4Unspecified()
		}
	}
	switch {
	case a.Is4() != to.Addr().Is4():
		return one, fmt.Errorf("%s and %s are of different address families", a, to.Addr())
	case a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast():
		return one, fmt.Errorf("listen: %s is not an address that other hosts can send to", a)
	case a == to.Addr():
		return one, fmt.Errorf("listen and to have the same address, %s", a)
	}
	one.Listen = netip.AddrPortFrom(a, listen.Port())
	one.Count = int(lastListen-listen.Port()) + 1
	switch n := int(last-to.Port()) + 1; {
	case n != one.Count:
		return one, fmt.Errorf("%d public ports, but %d target ports; the numbers must be equal",
			one.Count, n)
	case one.Proto == packet.ProtoSCTP && listen.Port() != to.Port():
		return one, fmt.Errorf("an SCTP port keeps its number, %d: its checksum covers the ports",
			listen.Port())
	}
	return one, nil
}

// ported are the protocols whose ports can be forwarded.
var ported = []packet.Proto{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP}

// parseEnd reads an address with a port or a range of ports: "203.0.113.7:443",
// "[2001:db8::7]:443", "203.0.113.7:8000-8010". Of ":443" the address is invalid.
func parseEnd(text string) (first netip.AddrPort, last uint16, err error) {
	bad := fmt.Errorf(`%q is not an address and a port; write "203.0.113.7:443", `+
		`"[2001:db8::7]:443", or "203.0.113.7:8000-8010"`, text)
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return first, 0, bad
	}
	var a netip.Addr
	if name := text[:i]; name != "" {
		inner, six := strings.CutPrefix(name, "[")
		inner, closed := strings.CutSuffix(inner, "]")
		a, err = netip.ParseAddr(inner)
		if err != nil || six != closed || six != a.Is6() || a.Zone() != "" || a.Is4In6() {
			return first, 0, bad
		}
	}
	from, to, isRange := strings.Cut(text[i+1:], "-")
	if !isRange {
		to = from
	}
	low, err1 := strconv.ParseUint(from, 10, 16)
	high, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil || low == 0 || high < low {
		return first, 0, bad
	}
	return netip.AddrPortFrom(a, uint16(low)), uint16(high), nil
}
