package cni

import (
	"context"
	"net/netip"
)

// Agent is the part of the node's agent that a runtime uses. An error with Temporary() bool that
// returns true means that the caller may try again later.
type Agent interface {
	Attach(ctx context.Context, r Request) (Reply, error)
	Detach(ctx context.Context, container, ifName string) error
	// Check compares a container's network with what Attach made. addrs are the addresses that the
	// runtime has recorded, if any.
	Check(ctx context.Context, container, ifName string, addrs []netip.Addr) error
	// GC detaches the attachments of a network that are not in the list of "CONTAINER/IFNAME".
	GC(ctx context.Context, network string, attachments []string) error
	// Status returns an error when the agent could not attach a pod now.
	Status(ctx context.Context) error
}

// Request asks for the network of a container.
type Request struct {
	// the name of the CNI network, whose garbage collection alone may detach the pod
	Network                        string
	Container, Name, Netns, IfName string
	Addrs                          []netip.Addr
	ExternalIPAM                   bool // Addrs come from a delegated IPAM plugin
	RuntimeMovesInterface          bool // the runtime moves and configures Reply.InnerIf itself
	MAC                            string
	MTU                            int
	Labels                         map[string]string
	Publish                        []Publish
	// Rates in bits per second with bursts in bytes, seen from the pod; 0 means no limit.
	RateIn, RateOut, BurstIn, BurstOut uint64
}

// Publish forwards a port of the host to the container.
type Publish struct {
	Proto    uint8
	Host     netip.Addr // zero: every address of the host
	HostPort uint16
	Port     uint16
}

// Reply describes the network of an attached container.
type Reply struct {
	HostIf, HostMAC string
	// the inner end until the runtime moves it (Request.RuntimeMovesInterface)
	InnerIf  string
	MAC      string
	MTU      int
	Addrs    []netip.Addr
	Gateways []netip.Addr
}
