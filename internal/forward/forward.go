// Package forward has what the agent, its pods and the kernel engine say about forwarding:
// endpoints, published ports, masquerading.
package forward

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/packet"
)

// Forwarder is the part of an engine that forwards packets to and from pods: the kernel engine's
// fast path and its address translation. docs/design/0004-containers.md is the specification.
type Forwarder interface {
	// SetEndpoint reports a pod, or replaces what is known of the one behind e.Index, and attaches
	// to its interface.
	SetEndpoint(e Endpoint) error
	// DeleteEndpoint removes the pod behind a host interface and ends its states. It is idempotent:
	// an unknown index is not an error.
	DeleteEndpoint(index uint32) error
	// Endpoints returns the counters of all pods. Those of the interfaces do not count what takes
	// the fast path.
	Endpoints() ([]EndpointCounters, error)
	// SetPublished replaces the set of published ports.
	SetPublished(ports []Published) error
	// SetMasquerade replaces the rules for packets that leave with the host's address.
	SetMasquerade(m Masquerade) error
}

// Endpoint is the pod behind one host interface.
type Endpoint struct {
	Index   uint32       // host end of the pair
	Netkit  bool         // the pair is a netkit, not a veth
	Name    string       // as rules name it: "pod:NAME"
	Addrs   []netip.Addr // the addresses that it may use as source
	MAC     [6]byte      // of the pod's end
	HostMAC [6]byte      // of the host's end
	MTU     uint32
	// Rates limit the pod's traffic by token buckets; 0 means no limit.
	Rates Rates
}

// Rates are limits in bits per second with bursts in bytes, seen from the pod.
type Rates struct {
	In       uint64 `json:"in,omitempty"`
	Out      uint64 `json:"out,omitempty"`
	InBurst  uint64 `json:"in_burst,omitempty"`
	OutBurst uint64 `json:"out_burst,omitempty"`
}

// EndpointCounters count the packets to and from a pod.
type EndpointCounters struct {
	Index                uint32
	PacketsIn, BytesIn   uint64 // to the pod
	PacketsOut, BytesOut uint64 // from the pod
	DropsIn, DropsOut    uint64
}

// Published gives a port of the host to a pod. Without protocol and ports, all that goes to an
// address, but to a published port, leads to another one: the half of 1:1 NAT that comes in.
type Published struct {
	Proto packet.Proto // TCP, UDP or SCTP
	// address of the host; the unspecified address of a family means any of the host's own
	Host netip.AddrPort
	Pod  netip.AddrPort
}

// TakenError lists the ports that another kind of Published, or a Service, already has. Nothing was
// changed.
type TakenError struct{ Ports []TakenPort } // in order of protocol, address and port; not empty

func (e *TakenError) Error() string {
	if more := len(e.Ports) - 1; more > 0 {
		return fmt.Sprintf("%v, and %d more ports", e.Ports[0], more)
	}
	return e.Ports[0].Error()
}

// TakenPort is a port that is given away, or an address without ports and protocol.
type TakenPort struct {
	Proto packet.Proto
	Host  netip.AddrPort
	By    error // who has it, and where to look
}

func (t TakenPort) Error() string {
	return fmt.Sprintf("%s port %d of %s: %v", t.Proto, t.Host.Port(), t.Host.Addr(), t.By)
}

// Masquerade selects the forwarded packets that leave with another source, through any interface
// that is not a pod's. Those from Sources, the pods, to anything but Except (the pod ranges of this
// and other nodes) leave with the host's address. It also selects those from Others to anything but
// Near.
type Masquerade struct {
	Sources []netip.Prefix
	Except  []netip.Prefix
	Others  []SourceNAT
	Near    []netip.Prefix
	// Ports are the ports for translated sources: at most MaxPortRanges ranges that do not overlap.
	// A port that the host itself uses, or publishes, is never chosen.
	Ports []PortRange
}

// PortRange are the ports from First to Last.
type PortRange struct{ First, Last uint16 }

// MaxPortRanges is how many ranges of ports a Masquerade can have.
const MaxPortRanges = 8

// SourceNAT translates the source of packets of a network behind the host.
type SourceNAT struct {
	Source netip.Prefix
	To     netip.Addr // invalid for the address of the interface that they leave by
	// ports and ids stay: Source is one address, and To is its alone
	Keep bool
}

// Prefixes are all prefixes that m names.
func (m *Masquerade) Prefixes() []netip.Prefix {
	all := slices.Concat(m.Sources, m.Except, m.Near)
	for _, o := range m.Others {
		all = append(all, o.Source)
	}
	return all
}

// Behind returns which source the packets from a prefix get that is not a pod's: that of the
// longest of m.Others that holds it.
func (m *Masquerade) Behind(p netip.Prefix) (to SourceNAT, ok bool) {
	longest := -1
	for _, o := range m.Others {
		if bits := o.Source.Bits(); bits > longest && bits <= p.Bits() &&
			o.Source.Contains(p.Addr()) {
			to, longest = o, bits
		}
	}
	return to, longest >= 0
}
