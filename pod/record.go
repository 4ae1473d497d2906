package pod

import (
	"net"
	"net/netip"
	"time"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// record is the content of a pod's file. Its names and forms are those of version 1, whatever the
// API calls the same things.
type record struct {
	Version                                 int
	Network, Container, Name, Netns, IfName string

	Addrs         []netip.Addr
	MAC           net.HardwareAddr
	MTU           int
	Labels        map[string]string
	Publish       []publishRecord
	Rates         ratesRecord
	Moved, Extern bool

	Key, HostIf string
	Index       uint32
	HostMAC     net.HardwareAddr
	Gateway     []netip.Addr
	Created     time.Time
	Ready       bool
	NetnsID     string
	Table       int            `json:",omitempty"`
	Routes      []netip.Prefix `json:",omitempty"`
	NextHops    []netip.Addr   `json:",omitempty"`
	Fixed       []string       `json:",omitempty"`
	Aliases     []string       `json:",omitempty"`
	OnlyAddrs   bool           `json:",omitempty"`
	Link        string         `json:",omitempty"` // the kernel's answer comes before
}

type publishRecord struct {
	Proto          uint8
	Host           netip.Addr
	HostPort, Port uint16
}

type ratesRecord struct{ In, Out, InBurst, OutBurst uint64 }

func recordOf(p *Pod) record {
	r := record{Version: recordVersion, Network: p.Network, Container: p.Container, Name: p.Name,
		Netns: p.Netns, IfName: p.IfName, Addrs: p.Addrs, MAC: net.HardwareAddr(p.MAC), MTU: p.MTU,
		Labels: p.Labels, Rates: ratesRecord(p.Rates), Moved: p.RuntimeMovesInterface,
		Extern: p.ExternalIPAM, Key: p.Key, HostIf: p.HostIf, Index: p.Index, HostMAC: p.HostMAC,
		Gateway: p.Gateway, Created: p.Created, Ready: p.Ready, NetnsID: p.NetnsID, Table: p.Table,
		Routes: p.Routes, NextHops: p.NextHops, Fixed: p.Fixed,
		Aliases: p.Aliases, OnlyAddrs: p.OnlyAddrs, Link: p.Link}
	for _, pub := range p.Publish {
		r.Publish = append(r.Publish, publishRecord{uint8(pub.Proto), pub.Host, pub.HostPort,
			pub.Port})
	}
	return r
}

func (r record) pod() *Pod {
	p := &Pod{Spec: Spec{Network: r.Network, Container: r.Container, Name: r.Name, Netns: r.Netns,
		IfName: r.IfName, Addrs: r.Addrs, MAC: MAC(r.MAC), MTU: r.MTU, Labels: r.Labels,
		Rates: forward.Rates(r.Rates), RuntimeMovesInterface: r.Moved, ExternalIPAM: r.Extern,
		Routes: r.Routes, NextHops: r.NextHops, Fixed: r.Fixed,
		Aliases: r.Aliases, OnlyAddrs: r.OnlyAddrs},
		Key: r.Key, HostIf: r.HostIf, Index: r.Index, HostMAC: r.HostMAC, Gateway: r.Gateway,
		Created: r.Created, Ready: r.Ready, NetnsID: r.NetnsID, Table: r.Table, Link: r.Link}
	for _, pub := range r.Publish {
		p.Publish = append(p.Publish, Publish{packet.Proto(pub.Proto), pub.Host, pub.HostPort,
			pub.Port})
	}
	return p
}
