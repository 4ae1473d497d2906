package cni

import (
	"context"
	"net/netip"
)

// Agent is what the node's agent does for a runtime. Errors that the caller may try again after a
// while implement Temporary() bool.
type Agent interface {
	Attach(ctx context.Context, r Request) (Reply, error)
	Detach(ctx context.Context, container, ifName string) error
	// Check compares a container's network with what Attach made. addrs are those that the runtime
	// knows, if any.
	Check(ctx context.Context, container, ifName string, addrs []netip.Addr) error
	// Keep detaches what was attached for a network and is not in the list of "CONTAINER/IFNAME".
	Keep(ctx context.Context, network string, attachments []string) error
	// Status says whether the agent could attach a pod now.
	Status(ctx context.Context) error
}

// Request asks for the network of a container.
type Request struct {
	// the name of the CNI network; no other's garbage collection takes the pod
	Network                        string
	Container, Name, Netns, IfName string
	Addrs                          []netip.Addr
	ExternalIPAM                   bool // Addrs come from a delegated IPAM plugin
	Moved                          bool // the runtime moves and configures Reply.InnerIf itself
	MAC                            string
	MTU                            int
	Labels                         map[string]string
	Publish                        []Publish
	// Rates in bits per second with bursts in bytes, seen from the pod; 0 means no limit.
	RateIn, RateOut, BurstIn, BurstOut uint64
}

// Publish gives a port of the host to the container.
type Publish struct {
	Proto    uint8
	Host     netip.Addr // zero: every address of the host
	HostPort uint16
	Port     uint16
}

// Reply describes the network that a container got.
type Reply struct {
	HostIf, HostMAC string
	InnerIf         string // where the inner end is until the runtime moves it (Request.Moved)
	MAC             string
	MTU             int
	Addrs           []netip.Addr
	Gateways        []netip.Addr
}
