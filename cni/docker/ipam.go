package docker

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
)

// The address driver: pools are the node's ranges; an address is reserved in them until Join uses
// it.

type poolRequest struct {
	Pool, SubPool string
	V6            bool
}

type addressRequest struct {
	PoolID, Address string
	Options         map[string]string
}

func (d *Driver) handleIPAM(mux *http.ServeMux) {
	handle(mux, "/IpamDriver.GetCapabilities", func(context.Context, struct{}) (any, error) {
		return map[string]bool{"RequiresMACAddress": false}, nil
	})
	handle(mux, "/IpamDriver.GetDefaultAddressSpaces",
		func(context.Context, struct{}) (any, error) {
			return map[string]string{"LocalDefaultAddressSpace": "weir",
				"GlobalDefaultAddressSpace": "weir"}, nil
		})
	handle(mux, "/IpamDriver.RequestPool", d.requestPool)
	handle(mux, "/IpamDriver.ReleasePool", func(context.Context, struct{}) (any, error) {
		d.taken()
		return struct{}{}, nil
	})
	handle(mux, "/IpamDriver.RequestAddress", d.requestAddress)
	handle(mux, "/IpamDriver.ReleaseAddress",
		func(_ context.Context, r addressRequest) (any, error) {
			if a, err := netip.ParseAddr(r.Address); err == nil && !d.isGateway(a) {
				d.node.Unreserve(a)
			}
			return struct{}{}, nil
		})
}

// requestPool returns the node's range of the family; every network shares it. A requested pool
// must be that range.
func (d *Driver) requestPool(_ context.Context, r poolRequest) (any, error) {
	for _, own := range d.node.Ranges() {
		if own.Prefix.Addr().Is6() != r.V6 {
			continue
		}
		if r.Pool != "" && r.Pool != own.Prefix.String() {
			return nil, fmt.Errorf("subnet %s is not this node's pod range %s; leave --subnet out",
				r.Pool, own.Prefix)
		}
		if r.SubPool != "" {
			return nil, fmt.Errorf("--ip-range %s is not supported: leave it out",
				r.SubPool)
		}
		if r.Pool == "" && d.again(r.V6) {
			return nil, fmt.Errorf("dockerd takes no range in which the host has routes, as it "+
				"has to its pods; add --subnet %s", own.Prefix)
		}
		return map[string]any{"PoolID": own.Prefix.String(), "Pool": own.Prefix.String(),
			"Data": map[string]string{}}, nil
	}
	return nil, fmt.Errorf("this node has no pod range of that family; add one to [pods] ranges")
}

// again reports whether dockerd asks for a range a second time instead of taking addresses of it.
// It would do so for ever, as there is one range of a family.
func (d *Driver) again(v6 bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	offered := &d.offered[0]
	if v6 {
		offered = &d.offered[1]
	}
	*offered = !*offered
	return !*offered
}

// taken notes that dockerd has taken the range that it was offered.
func (d *Driver) taken() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.offered = [2]bool{}
}

func (d *Driver) requestAddress(_ context.Context, r addressRequest) (any, error) {
	d.taken()
	pool, err := netip.ParsePrefix(r.PoolID)
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	want := netip.IPv4Unspecified()
	if pool.Addr().Is6() {
		want = netip.IPv6Unspecified()
	}
	if r.Address != "" {
		if want, err = netip.ParseAddr(r.Address); err != nil {
			return nil, fmt.Errorf("address: %w", err)
		}
	}
	if r.Options["RequestAddressType"] == "com.docker.network.gateway" || d.isGateway(want) {
		return d.gatewayOf(pool, r.Address)
	}
	a, err := d.node.Reserve(want)
	if err != nil {
		return nil, err
	}
	return address(netip.PrefixFrom(a, a.BitLen())), nil // a host address: pods share no segment
}

// gatewayOf returns the gateway's address: there is only one.
func (d *Driver) gatewayOf(pool netip.Prefix, requested string) (any, error) {
	for _, own := range d.node.Ranges() {
		if own.Prefix != pool {
			continue
		}
		if requested != "" && requested != own.Gateway.String() {
			return nil, fmt.Errorf("the gateway of %s is %s and cannot be %s; leave --gateway out",
				pool, own.Gateway, requested)
		}
		return address(netip.PrefixFrom(own.Gateway, pool.Bits())), nil
	}
	return nil, fmt.Errorf("pool %s is not a pod range of this node", pool)
}

func (d *Driver) isGateway(a netip.Addr) bool {
	return slices.ContainsFunc(d.node.Ranges(), func(r Range) bool { return r.Gateway == a })
}

func address(p netip.Prefix) map[string]any {
	return map[string]any{"Address": p.String(), "Data": map[string]string{}}
}
