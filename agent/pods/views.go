package pods

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/pod"
)

// podView shows a pod.
func podView(p pod.Pod) api.Pod {
	v := api.Pod{
		Network: p.Network, Container: p.Container, Name: p.Name, Netns: p.Netns, IfName: p.IfName,
		HostIf: p.HostIf, Index: p.Index, Link: p.Link,
		Addrs: p.Addrs, Gateways: p.Gateway, MAC: p.MAC.String(), HostMAC: p.HostMAC.String(),
		MTU: p.MTU, Labels: p.Labels, Aliases: p.Aliases,
		Publish: p.Publish, Rates: p.Rates,
		Created: p.Created,
	}
	if p.RuntimeMovesInterface {
		v.InnerIf = p.InnerIf()
	}
	return v
}

// ByAddress returns the names of all pods, as "pod:NAME".
func (s *Service) ByAddress() map[netip.Addr]string {
	names := map[netip.Addr]string{}
	for _, one := range s.list() {
		for _, a := range one.Addrs {
			names[a] = "pod:" + one.Name
		}
	}
	return names
}

// Tables returns the tables of labels.
func (s *Service) Tables() (all []api.Table) {
	tables := s.labels.all()
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t := api.Table{Name: name, Label: true, Entries: []api.TableEntry{}}
		for _, e := range tables[name] {
			t.Entries = append(t.Entries, api.TableEntry{Prefix: e.Prefix.String()})
		}
		all = append(all, t)
	}
	return all
}
