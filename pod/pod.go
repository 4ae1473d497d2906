package pod

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// Spec is the request for the network of a container, by whichever way it comes. What is left out
// is chosen.
type Spec struct {
	// the runtime's name of the network, which its garbage collection is about; empty if there is
	// none
	Network   string `json:"network,omitempty"`
	Container string `json:"container"` // the runtime's id of the container
	// what rules call it, "pod:NAME"; unique on the node, whatever its capitals; Container if empty
	Name   string `json:"name,omitempty"`
	Netns  string `json:"netns"`            // path of the network namespace
	IfName string `json:"ifname,omitempty"` // interface inside; "eth0" if empty
	// wanted addresses, at most one of each family; others are picked from the ranges
	Addrs []netip.Addr `json:"addrs,omitempty"`
	// None are picked of a family that Addrs does not have.
	OnlyAddrs bool `json:"only_addrs,omitempty"`
	// The addresses come from another IPAM: they need not lie in the ranges, and none are picked.
	ExternalIPAM bool `json:"external_ipam,omitempty"`
	// Networks that the container reaches over the interface; everything, for a family that has
	// none.
	Routes []netip.Prefix `json:"routes,omitempty"`
	// Next hops of these routes as another IPAM has them, at most one of each family; the gateways
	// of the ranges where there are none. Whatever their addresses, the host is behind them.
	NextHops []netip.Addr `json:"next_hops,omitempty"`
	// The runtime itself moves the inner end, left in the host's namespace as InnerIf, and
	// configures it; Netns serves to identify the container only.
	RuntimeMovesInterface bool `json:"runtime_moves_interface,omitempty"`
	MAC                   MAC  `json:"mac,omitempty"` // of the inner interface
	MTU                   int  `json:"mtu,omitempty"` // 0: the Manager's
	// become tables: table(app=web)
	Labels map[string]string `json:"labels,omitempty"`
	// keys of labels that the network's configuration sets, which Manager.Label does not change
	Fixed []string `json:"fixed,omitempty"`
	// further names by which containers with an interface in Network find the pod
	Aliases []string      `json:"aliases,omitempty"`
	Publish []Publish     `json:"publish,omitempty"`
	Rates   forward.Rates `json:"rates"`
}

// Publish gives a port of the host to the pod.
type Publish struct {
	Proto    packet.Proto `json:"proto"`         // TCP, UDP or SCTP
	Host     netip.Addr   `json:"host,omitzero"` // zero: every address of the host
	HostPort uint16       `json:"host_port"`
	Port     uint16       `json:"port"`
}

// publishable reports whether ports of a protocol can be published: TCP, UDP and SCTP.
func publishable(p packet.Proto) bool {
	return p == packet.ProtoTCP || p == packet.ProtoUDP || p == packet.ProtoSCTP
}

// ParsePublishable reads the name of a protocol whose ports can be published, in capitals or not;
// "" is TCP.
func ParsePublishable(name string) (packet.Proto, error) {
	if name == "" {
		return packet.ProtoTCP, nil
	}
	p, ok := packet.ProtoNumber(strings.ToLower(name))
	if !ok || !publishable(p) {
		return 0, fmt.Errorf("protocol %q cannot be published; tcp, udp and sctp can", name)
	}
	return p, nil
}

// MAC is the address of an Ethernet interface. Its text is as net.ParseMAC reads it.
type MAC net.HardwareAddr

func (m MAC) String() string { return net.HardwareAddr(m).String() }

// MarshalText implements encoding.TextMarshaler.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *MAC) UnmarshalText(text []byte) error {
	a, err := net.ParseMAC(string(text))
	*m = MAC(a)
	return err
}

// Pod is the network of a container. Its record is in store.go.
type Pod struct {
	Spec
	Key     string // "CONTAINER/IFNAME", what identifies it
	HostIf  string
	Index   uint32 // of the host's end
	Link    string // LinkVeth or LinkNetkit
	HostMAC net.HardwareAddr
	// its next hops: the gateways of the ranges, or those of another IPAM
	Gateway []netip.Addr
	Created time.Time
	Ready   bool // false: an Attach is under way, or was interrupted
	// the identity of the namespace behind Netns (nl.NS.ID); empty if it could not be read
	NetnsID string
	// routing table inside the container for packets from its addresses; 0: the main one, of the
	// first interface
	Table int
	// guarded by Manager.mu: the pod is being removed; its name and ports are free, its addresses
	// are not yet
	ending bool

	published bool // the fast path may have its ports; to be read only with the pod claimed
}

// InnerIf is the name that the container's end has until the runtime moves it
// (Spec.RuntimeMovesInterface).
func (p *Pod) InnerIf() string { return p.HostIf + "p" }

// Endpoint returns the pod as the fast path needs it.
func (p *Pod) Endpoint() forward.Endpoint {
	e := forward.Endpoint{Index: p.Index, Netkit: p.Link == LinkNetkit, Name: "pod:" + p.Name,
		Addrs: p.Addrs, MTU: uint32(p.MTU), Rates: p.Rates}
	copy(e.MAC[:], p.MAC)
	copy(e.HostMAC[:], p.HostMAC)
	return e
}

// Published returns the pod's published ports as the fast path needs them: one for each family of
// the pod. A runtime may ask for a port of every address and for that of one family: it is one.
func (p *Pod) Published() []forward.Published {
	var list []forward.Published
	seen := make(map[forward.Published]bool, len(p.Publish))
	for _, pub := range p.Publish {
		for _, a := range p.Addrs {
			host := pub.Host
			if !host.IsValid() {
				host = unspecified(a)
			}
			if host.Is4() != a.Is4() {
				continue
			}
			one := forward.Published{
				Proto: pub.Proto,
				Host:  netip.AddrPortFrom(host, pub.HostPort),
				Pod:   netip.AddrPortFrom(a, pub.Port),
			}
			if !seen[one] {
				seen[one], list = true, append(list, one)
			}
		}
	}
	return list
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// Names go into rules, interface aliases and file names. Longest ones in bytes.
const (
	maxContainer = 128
	maxName      = 317 // NAMESPACE.POD of Kubernetes: 63 and 253
	maxIfName    = 15
)

// validName reports whether s begins with a letter or digit, continues with these or with '_', '.',
// '-' or one of others, and has at most max bytes. Regular expressions that count this far would
// take half of the time in which the binary starts.
func validName(s, others string, max int) bool {
	for i, c := range s {
		alphanumeric := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alphanumeric && (i == 0 || !strings.ContainsRune("_.-"+others, c)) {
			return false
		}
	}
	return s != "" && len(s) <= max
}

// Limits of labels. Each is a table of the engine, whose number is limited; its name is at most as
// long as rules can write it.
const (
	maxLabels = 32
	maxLabel  = 63 // bytes of KEY=VALUE
)

// maxAliases bounds the further names of a pod.
const maxAliases = 64

// check fills in defaults and refuses invalid values.
func (s *Spec) check() error {
	if s.IfName == "" {
		s.IfName = "eth0"
	}
	if s.Name == "" {
		s.Name = s.Container
	}
	switch {
	case !validName(s.Container, "", maxContainer):
		return fmt.Errorf("container id %q: only letters, digits, '_', '.' and '-', at most 128",
			s.Container)
	case !validName(s.Name, "", maxName):
		return fmt.Errorf("pod name %q: only letters, digits, '_', '.' and '-', at most 317",
			s.Name)
	case !validName(s.IfName, "", maxIfName):
		return fmt.Errorf("interface name %q: only letters, digits, '_', '.' and '-', at most 15",
			s.IfName)
	case s.Netns == "":
		return fmt.Errorf("pod %s: no network namespace given", s.Name)
	case s.MAC != nil && (len(s.MAC) != 6 || s.MAC[0]&1 != 0):
		return fmt.Errorf("pod %s: %s is not the address of one Ethernet interface", s.Name, s.MAC)
	case len(s.Aliases) > maxAliases:
		return fmt.Errorf("pod %s: %d aliases; a pod has at most %d", s.Name, len(s.Aliases),
			maxAliases)
	case s.MTU != 0 && (s.MTU < 576 || s.MTU > 65535):
		return fmt.Errorf("pod %s: an MTU of %d is not between 576 and 65535", s.Name, s.MTU)
	}
	families := map[bool]netip.Addr{}
	for i, a := range s.Addrs {
		a = a.Unmap()
		s.Addrs[i] = a
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() ||
			a.Zone() != "" {
			return fmt.Errorf("pod %s: %s cannot be the address of a container", s.Name, a)
		}
		if old, ok := families[a.Is4()]; ok {
			return fmt.Errorf("pod %s: two addresses of one family, %s and %s; a pod has at most "+
				"one of each", s.Name, old, a)
		}
		families[a.Is4()] = a
	}
	if err := errors.Join(s.checkNextHops(), s.checkLabels()); err != nil {
		return err
	}
	return s.checkPublish()
}

// checkNextHops refuses next hops that cannot be those of the pod.
func (s *Spec) checkNextHops() error {
	for i, a := range s.NextHops {
		switch {
		case !s.ExternalIPAM:
			return fmt.Errorf("pod %s: the gateway of its ranges is the host, not %s", s.Name, a)
		case !a.IsValid() || a != a.Unmap() || a.Zone() != "" || a.IsUnspecified() ||
			a.IsMulticast() || a.IsLoopback():
			return fmt.Errorf("pod %s: %s cannot be a gateway", s.Name, a)
		case slices.Contains(s.Addrs, a):
			return fmt.Errorf("pod %s: its gateway is its own address %s", s.Name, a)
		case !slices.ContainsFunc(s.Addrs, func(own netip.Addr) bool {
			return own.Is4() == a.Is4()
		}):
			return fmt.Errorf("pod %s: it has no address of the family of its gateway %s", s.Name,
				a)
		}
		for _, other := range s.NextHops[:i] {
			if other.Is4() == a.Is4() {
				return fmt.Errorf("pod %s: two gateways of one family, %s and %s", s.Name, other, a)
			}
		}
	}
	return nil
}

// nextHop returns the next hop of a family that was asked for, invalid if there is none.
func (s *Spec) nextHop(is4 bool) netip.Addr {
	for _, a := range s.NextHops {
		if a.Is4() == is4 {
			return a
		}
	}
	return netip.Addr{}
}

func (s *Spec) checkLabels() error {
	if err := CheckLabels(s.Labels); err != nil {
		return fmt.Errorf("pod %s: %w", s.Name, err)
	}
	return nil
}

// CheckLabels refuses labels that cannot be tables.
func CheckLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("%d labels; a pod has at most %d", len(labels), maxLabels)
	}
	for k, v := range labels {
		if len(k)+1+len(v) > maxLabel {
			return fmt.Errorf("label %s=%s is longer than %d bytes", k, v, maxLabel)
		}
		if !validName(k, "/", maxLabel) || !validName(v, "/", maxLabel) {
			return fmt.Errorf("label %q=%q: only letters, digits, '_', '.', '/' and '-', "+
				"at most 63 each", k, v)
		}
	}
	return nil
}
