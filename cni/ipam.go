package cni

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
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

// add requests addresses, with the routes of their networks. It ignores the plugin's gateways: a
// pod's gateway is the node's.
func (i ipam) add(ctx context.Context) (addrs []netip.Addr, routes []netip.Prefix, dns types.DNS,
	err error) {
	r, err := invoke.DelegateAdd(ctx, i.plugin, i.stdin, nil)
	if err != nil {
		return nil, nil, dns, err
	}
	result, err := types100.NewResultFromResult(r)
	if err != nil {
		return nil, nil, dns, err
	}
	for _, ip := range result.IPs {
		a, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return nil, nil, dns, fmt.Errorf("returned %v, which is not an address", ip.Address)
		}
		addrs = append(addrs, a.Unmap())
	}
	if len(addrs) == 0 {
		return nil, nil, dns, fmt.Errorf("returned no address")
	}
	for _, r := range result.Routes {
		a, ok := netip.AddrFromSlice(r.Dst.IP)
		ones, _ := r.Dst.Mask.Size()
		dst := netip.PrefixFrom(a.Unmap(), ones).Masked()
		if !ok || !dst.IsValid() {
			return nil, nil, dns, fmt.Errorf("returned %v, which is not a network", r.Dst)
		}
		routes = append(routes, dst)
	}
	return addrs, routes, result.DNS, nil
}

func (i ipam) del(ctx context.Context) error {
	if i.plugin == "" {
		return nil
	}
	return invoke.DelegateDel(ctx, i.plugin, i.stdin, nil)
}

func (i ipam) check(ctx context.Context) error {
	if i.plugin == "" {
		return nil
	}
	return invoke.DelegateCheck(ctx, i.plugin, i.stdin, nil)
}

func (i ipam) gc(ctx context.Context) error {
	if i.plugin == "" {
		return nil
	}
	return invoke.DelegateGC(ctx, i.plugin, i.stdin, nil)
}
