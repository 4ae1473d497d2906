package netavark

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/cni"
	"github.com/weirnet/weir/pod"
)

// spec is the request to the agent. Labels of the network are those of all its containers; options
// of a container (podman run --network NAME:label.KEY=VALUE) add others.
func (c *container) spec(netns string, of options) (pod.Spec, error) {
	s := pod.Spec{Network: c.Network.Name, Container: c.ID, Name: c.Name, Netns: netns,
		IfName: c.Own.Interface, Addrs: c.Own.IPs, Aliases: c.Own.Aliases, MTU: of.mtu,
		Labels: map[string]string{},
		Fixed:  slices.Sorted(maps.Keys(of.labels))}
	own, err := readOptions(c.Own.Options)
	if err != nil {
		return s, fmt.Errorf("container %s: %w", c.Name, err)
	}
	if own.root != "/" {
		return s, fmt.Errorf("container %s: the option root is the network's", c.Name)
	}
	for key, value := range own.labels {
		if fixed, there := of.labels[key]; there && fixed != value {
			return s, fmt.Errorf("container %s: network %s sets the label %s=%s", c.Name,
				c.Network.Name, key, fixed)
		}
	}
	maps.Copy(s.Labels, own.labels)
	maps.Copy(s.Labels, of.labels)
	if own.mtu != 0 {
		s.MTU = own.mtu
	}
	if c.Own.MAC != "" {
		if err := s.MAC.UnmarshalText([]byte(c.Own.MAC)); err != nil {
			return s, fmt.Errorf("container %s: static_mac: %w", c.Name, err)
		}
	}
	for _, p := range c.Ports {
		ports, err := p.publish()
		if err != nil {
			return s, fmt.Errorf("container %s: published port: %w", c.Name, err)
		}
		s.Publish = append(s.Publish, ports...)
	}
	return s, nil
}

// publish returns the ports of a mapping, each.
func (p *port) publish() (all []pod.Publish, err error) {
	var host netip.Addr
	if p.HostIP != "" {
		if host, err = netip.ParseAddr(p.HostIP); err != nil {
			return nil, err
		}
		if host = host.Unmap(); host == netip.IPv6Unspecified() {
			host = netip.Addr{} // both families
		}
	}
	if p.Host == 0 || p.Container == 0 {
		return nil, errors.New("give a port of the host and one of the container, as in -p 8080:80")
	}
	last := max(p.Range, 1) - 1
	if int(p.Host)+int(last) > 65535 || int(p.Container)+int(last) > 65535 {
		return nil, fmt.Errorf("%d ports from %d and %d on: ports go from 1 to 65535", p.Range,
			p.Host, p.Container)
	}
	for name := range strings.SplitSeq(p.Protocol, ",") {
		proto, err := pod.ParsePublishable(name)
		if err != nil {
			return nil, err
		}
		for i := range last + 1 {
			all = append(all, pod.Publish{Proto: proto, Host: host, HostPort: p.Host + i,
				Port: p.Container + i})
		}
	}
	return all, nil
}

// statusOf describes an attached container.
func statusOf(ifName string, r cni.Reply) status {
	i := ifaceInfo{MAC: r.MAC, Subnets: []addrOnLink{}}
	for _, a := range r.Addrs {
		on := addrOnLink{IPNet: netip.PrefixFrom(a, a.BitLen())}
		for _, gw := range r.Gateways {
			if gw.Is4() == a.Is4() {
				on.Gateway = gw
			}
		}
		i.Subnets = append(i.Subnets, on)
	}
	s := status{SearchDomains: []string{}, Servers: []netip.Addr{},
		Interfaces: map[string]ifaceInfo{ifName: i}}
	if len(r.Nameservers) > 0 {
		s.SearchDomains, s.Servers = []string{"weir"}, r.Nameservers
	}
	return s
}
