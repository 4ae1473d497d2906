package cni

import (
	"context"
	"net/netip"

	"github.com/weirnet/weir/pod"
)

// Agent is the part of the node's agent that a runtime uses. An error with Temporary() bool that
// returns true means that the caller may try again later.
type Agent interface {
	Attach(ctx context.Context, r pod.Spec) (Reply, error)
	Detach(ctx context.Context, container, ifName string) error
	// Check compares a container's network with what Attach made. addrs are the addresses that the
	// runtime has recorded, if any.
	Check(ctx context.Context, container, ifName string, addrs []netip.Addr) error
	// Attached reports whether there is anything of a container's network, also while it is being
	// made or removed.
	Attached(ctx context.Context, container, ifName string) (bool, error)
	// GC detaches the attachments of a network that are not in the list of "CONTAINER/IFNAME".
	GC(ctx context.Context, network string, attachments []string) error
	// Status returns an error when the agent could not attach a pod now.
	Status(ctx context.Context) error
}

// Reply describes the network of an attached container.
type Reply struct {
	HostIf, HostMAC string
	// the inner end until the runtime moves it (pod.Spec.RuntimeMovesInterface)
	InnerIf  string
	MAC      string
	MTU      int
	Addrs    []netip.Addr
	Gateways []netip.Addr
	// Nameservers know the names of pods; none if there are none.
	Nameservers []netip.Addr
}
