package cni

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/weirnet/weir/pod"
)

// add attaches the container. If it fails after a delegated IPAM plugin was called, it releases
// what that may have assigned (ipam.undo).
func add(ctx context.Context, c *call) (any, *types.Error) {
	prev, e := c.previous()
	if e != nil {
		return nil, e
	}
	if prev != nil {
		for _, i := range prev.Interfaces {
			if i.Sandbox == c.env.Netns && i.Name == c.env.IfName {
				return nil, fail(types.ErrInvalidNetworkConfig,
					"put weir-cni first in the list: it makes the interface itself",
					"an earlier plugin of the chain made interface %s already", i.Name)
			}
		}
	}
	request, e := c.config.request(c.env)
	if e != nil {
		return nil, e
	}
	ipam, e := c.ipam()
	if e != nil {
		return nil, e
	}
	if e := ipam.usable(); e != nil {
		return nil, e
	}
	if ipam.plugin != "" {
		given, err := ipam.add(ctx)
		if err != nil {
			err = joinUndo(err, ipam.undo(ctx, c))
			return nil, fail(CodeIPAM, "the plugin must be in CNI_PATH ("+c.env.Path+")",
				"IPAM plugin %s: %v", ipam.plugin, err)
		}
		if err := given.apply(&request); err != nil {
			err = joinUndo(err, ipam.undo(ctx, c))
			return nil, fail(types.ErrInvalidNetworkConfig,
				"change the section ipam of the configuration; see CNI in the documentation",
				"IPAM plugin %s: %v", ipam.plugin, err)
		}
		if c.config.DNS.IsEmpty() {
			c.config.DNS = given.DNS
		}
	}
	reply, err := c.agent.Attach(ctx, request)
	if err != nil {
		return nil, fromAgent("attach "+c.env.Container, joinUndo(err, ipam.undo(ctx, c)))
	}
	result, err := c.result(prev, reply, &request)
	if err != nil {
		ctx, cancel := undoContext(ctx)
		defer cancel()
		undo := errors.Join(c.agent.Detach(ctx, c.env.Container, c.env.IfName), ipam.del(ctx))
		return nil, fail(CodeBroken, "", "result: %v", joinUndo(err, undo))
	}
	return result, nil
}

// joinUndo adds to the error of an ADD that of its undo, nil if there is none. A plugin that cannot
// be run gives the same error twice.
func joinUndo(err, undo error) error {
	if undo == nil || undo.Error() == err.Error() {
		return err
	}
	return errors.Join(err, undo)
}

// undoTime is how long the undo of a failed ADD may take.
const undoTime = 10 * time.Second

// undoContext returns the context of an undo. That of the ADD may have ended: it is why some fail.
func undoContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTime)
}

// result describes the attachment, after the results of earlier plugins of the chain, in the
// version of the configuration.
func (c *call) result(prev *types100.Result, r Reply, request *pod.Spec) (types.Result, error) {
	result := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, DNS: c.config.DNS}
	if prev != nil {
		result.Interfaces, result.IPs, result.Routes = prev.Interfaces, prev.IPs, prev.Routes
		if result.DNS.IsEmpty() {
			result.DNS = prev.DNS
		}
	}
	if result.DNS.IsEmpty() && len(r.Nameservers) > 0 {
		result.DNS.Search = []string{"weir"}
		for _, a := range r.Nameservers {
			result.DNS.Nameservers = append(result.DNS.Nameservers, a.String())
		}
	}
	inner := len(result.Interfaces) + 1
	result.Interfaces = append(result.Interfaces,
		&types100.Interface{Name: r.HostIf, Mac: r.HostMAC, Mtu: r.MTU},
		&types100.Interface{Name: c.env.IfName, Mac: r.MAC, Mtu: r.MTU, Sandbox: c.env.Netns})
	for _, a := range r.Addrs {
		ip := &types100.IPConfig{Interface: new(inner),
			Address: net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
		for _, gw := range r.Gateways {
			if gw.Is4() == a.Is4() {
				ip.Gateway = gw.AsSlice()
				for _, dst := range request.RoutesOver(gw) {
					result.Routes = append(result.Routes,
						&types.Route{Dst: netOf(dst), GW: gw.AsSlice()})
				}
			}
		}
		result.IPs = append(result.IPs, ip)
	}
	return result.GetAsVersion(c.config.CNIVersion)
}

func netOf(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// previous reads prevResult, nil if there is none.
func (c *call) previous() (*types100.Result, *types.Error) {
	if len(c.config.PrevResult) == 0 || string(c.config.PrevResult) == "null" {
		return nil, nil
	}
	r, err := create.Create(c.config.CNIVersion, c.config.PrevResult)
	if err != nil {
		return nil, fail(types.ErrDecodingFailure, "", "prevResult: %v", err)
	}
	prev, err := current(r)
	if err != nil {
		return nil, fail(types.ErrDecodingFailure, "", "prevResult: %v", err)
	}
	return prev, nil
}

// current converts a result to the newest version. It refuses null in a list, which types100 does
// not expect there.
func current(r types.Result) (*types100.Result, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var lists struct{ Interfaces, IPs, Routes []*struct{} }
	if err := json.Unmarshal(text, &lists); err != nil {
		return nil, err
	}
	switch {
	case slices.Contains(lists.Interfaces, nil):
		return nil, errors.New("interfaces contains null")
	case slices.Contains(lists.IPs, nil):
		return nil, errors.New("ips contains null")
	case slices.Contains(lists.Routes, nil):
		return nil, errors.New("routes contains null")
	}
	return types100.NewResultFromResult(r)
}

// del detaches. It is idempotent: nothing to detach is not an error (CNI specification, section 4,
// DEL).
func del(ctx context.Context, c *call) (any, *types.Error) {
	ipam, e := c.ipam()
	if e != nil {
		return nil, e
	}
	if err := c.agent.Detach(ctx, c.env.Container, c.env.IfName); err != nil {
		return nil, fromAgent("detach "+c.env.Container, err)
	}
	if err := ipam.del(ctx); err != nil {
		return nil, fail(CodeIPAM, "the plugin must be in CNI_PATH ("+c.env.Path+")",
			"IPAM plugin %s: %v", ipam.plugin, err)
	}
	return nil, nil
}

// addrsOf returns the addresses of the container's interface in a result.
func (c *call) addrsOf(r *types100.Result) (all []netip.Addr) {
	for _, ip := range r.IPs {
		if i := ip.Interface; i != nil &&
			(*i < 0 || *i >= len(r.Interfaces) || r.Interfaces[*i].Name != c.env.IfName ||
				r.Interfaces[*i].Sandbox == "") {
			continue
		}
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// check compares the container's network with the result of ADD.
func check(ctx context.Context, c *call) (any, *types.Error) {
	prev, e := c.previous()
	if e != nil {
		return nil, e
	}
	if prev == nil {
		return nil, fail(types.ErrInvalidNetworkConfig,
			"CHECK gets the result of ADD as prevResult", "the configuration has no prevResult")
	}
	addrs := c.addrsOf(prev)
	if len(addrs) == 0 {
		return nil, fail(CodeCheck, "CHECK gets the result of ADD as prevResult",
			"prevResult has no address of %s", c.env.IfName)
	}
	if err := c.agent.Check(ctx, c.env.Container, c.env.IfName, addrs); err != nil {
		e := fromAgent("check "+c.env.Container, err)
		if e.Code == CodeAgent {
			e.Code, e.Details = CodeCheck,
				"something else changed the container's network; restart the container"
		}
		return nil, e
	}
	ipam, e := c.ipam()
	if e != nil {
		return nil, e
	}
	if err := ipam.check(ctx); err != nil {
		return nil, fail(CodeIPAM, "", "IPAM plugin %s: %v", ipam.plugin, err)
	}
	return nil, nil
}
