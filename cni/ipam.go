package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weirnet/weir/pod"
)

// ipam is a delegated address management plugin; the zero value is Weir's own, which delegates
// nothing. The plugin gets the whole configuration and this process's environment (CNI
// specification, section 4).
type ipam struct {
	plugin string
	stdin  []byte
}

func (c *call) ipam() (ipam, *types.Error) {
	plugin, err := c.config.ipamType()
	if err != nil {
		return ipam{}, fail(types.ErrInvalidNetworkConfig,
			"ipam is {\"type\": PLUGIN, ...}; without it Weir allocates addresses", "ipam: %v", err)
	}
	return ipam{plugin, c.stdin}, nil
}

// dhcp is the plugin that cannot work here: it asks for an address over the container's interface.
const dhcp = "dhcp"

// usable refuses a plugin that could not give an address.
func (i ipam) usable() *types.Error {
	if i.plugin != dhcp {
		return nil
	}
	return fail(types.ErrInvalidNetworkConfig,
		"leave ipam out, and the container gets an address of [pods] ranges; or use host-local "+
			"or static",
		"ipam: dhcp cannot be used: it asks over the container's interface, which Weir makes "+
			"when the address is known, and whose other end is this host alone, without a server")
}

// given is the result of an IPAM plugin.
type given struct{ *types100.Result }

// add requests addresses.
func (i ipam) add(ctx context.Context) (given, error) {
	r, err := invoke.DelegateAdd(ctx, i.plugin, i.stdin, nil)
	if err != nil {
		return given{}, err
	}
	result, err := current(r)
	return given{result}, err
}

// apply enters addresses, gateways and routes of the result in the request. It refuses what the
// container could not have: its one link leads to the host.
func (g given) apply(request *pod.Spec) error {
	request.Addrs, request.Routes, request.NextHops, request.ExternalIPAM = nil, nil, nil, true
	if len(g.IPs) == 0 {
		return errors.New("it returned no address")
	}
	for _, ip := range g.IPs {
		a, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return fmt.Errorf("it returned %v, which is not an address", ip.Address)
		}
		request.Addrs = append(request.Addrs, a.Unmap())
		if err := nextHop(request, ip.Gateway, a.Unmap().Is4(), "address "+a.String()); err != nil {
			return err
		}
	}
	for _, r := range g.Routes {
		a, ok := netip.AddrFromSlice(r.Dst.IP)
		ones, _ := r.Dst.Mask.Size()
		dst := netip.PrefixFrom(a.Unmap(), ones).Masked()
		if !ok || !dst.IsValid() {
			return fmt.Errorf("it returned %v, which is not a network", r.Dst)
		}
		if r.MTU != 0 || r.AdvMSS != 0 || r.Priority != 0 || r.Table != nil || r.Scope != nil {
			return fmt.Errorf("the route to %s has mtu, advmss, priority, table or scope; the "+
				"routes of a container have a destination and a gateway", dst)
		}
		if err := nextHop(request, r.GW, a.Unmap().Is4(), "route to "+dst.String()); err != nil {
			return err
		}
		request.Routes = append(request.Routes, dst)
	}
	return nil
}

// nextHop enters a gateway, nil if there is none. All of a family have to be one.
func nextHop(request *pod.Spec, gateway net.IP, is4 bool, of string) error {
	if gateway == nil {
		return nil
	}
	a, ok := netip.AddrFromSlice(gateway)
	if a = a.Unmap(); !ok || a.Is4() != is4 {
		return fmt.Errorf("the %s has the gateway %s, which is of another family", of, gateway)
	}
	for _, other := range request.NextHops {
		if other.Is4() == is4 && other != a {
			return fmt.Errorf("the %s has the gateway %s, another one has %s: a container has one "+
				"link, to the host, and one gateway of a family", of, a, other)
		}
	}
	if !slices.Contains(request.NextHops, a) {
		request.NextHops = append(request.NextHops, a)
	}
	return nil
}

// del releases the addresses. It is idempotent.
func (i ipam) del(ctx context.Context) error {
	if i.plugin == "" || i.plugin == dhcp {
		return nil
	}
	return invoke.DelegateDel(ctx, i.plugin, i.stdin, nil)
}

// undo releases what a failed ADD got, unless the agent has a pod, or may have one. Then the ADD
// was repeated without a DEL, and its addresses are those of a container that runs. The DEL of that
// one releases them. A plugin whose own ADD failed gets a DEL too: it may have left something (CNI
// specification, section 4, delegated plugin execution procedure).
func (i ipam) undo(ctx context.Context, c *call) error {
	if i.plugin == "" {
		return nil
	}
	ctx, cancel := undoContext(ctx)
	defer cancel()
	attached, err := c.agent.Attached(ctx, c.env.Container, c.env.IfName)
	if attached || err != nil {
		return nil
	}
	return i.del(ctx)
}

func (i ipam) check(ctx context.Context) error {
	if i.plugin == "" {
		return nil
	}
	return invoke.DelegateCheck(ctx, i.plugin, i.stdin, nil)
}

// status returns an error if the plugin could not assign an address now.
func (i ipam) status(ctx context.Context) error {
	if i.plugin == "" {
		return nil
	}
	return invoke.DelegateStatus(ctx, i.plugin, i.stdin, nil)
}

func (i ipam) gc(ctx context.Context) error {
	if i.plugin == "" || i.plugin == dhcp {
		return nil
	}
	return invoke.DelegateGC(ctx, i.plugin, i.stdin, nil)
}
