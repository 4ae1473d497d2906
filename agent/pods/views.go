package pods

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/cni"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/pod"
)

func specOf(r api.Attach) (pod.Spec, error) {
	s := pod.Spec{
		Network: r.Network, Container: r.Container, Name: r.Name, Netns: r.Netns, IfName: r.IfName,
		Addrs: r.Addrs, ExternalIPAM: r.ExternalIPAM, RuntimeMovesInterface: r.Moved, MTU: r.MTU,
		Labels: r.Labels,
		Rates: firewall.Rates{In: r.Rates.In, Out: r.Rates.Out, InBurst: r.Rates.InBurst,
			OutBurst: r.Rates.OutBurst},
	}
	if r.MAC != "" {
		mac, err := net.ParseMAC(r.MAC)
		if err != nil {
			return s, fmt.Errorf("pod %s: %w", r.Name, err)
		}
		s.MAC = mac
	}
	for _, p := range r.Publish {
		proto, ok := packet.ProtoNumber(p.Proto)
		if !ok || !cni.Publishable(proto) {
			return s, fmt.Errorf("pod %s: protocol %q cannot be published; tcp, udp and sctp can",
				r.Name, p.Proto)
		}
		s.Publish = append(s.Publish,
			pod.Publish{Proto: uint8(proto), Host: p.Host, HostPort: p.HostPort, Port: p.Port})
	}
	return s, nil
}

func podView(p pod.Pod) api.Pod {
	v := api.Pod{
		Network: p.Network, Container: p.Container, Name: p.Name, Netns: p.Netns, IfName: p.IfName,
		HostIf: p.HostIf, Index: p.Index,
		Addrs: p.Addrs, Gateways: p.Gateway, MAC: p.MAC.String(), HostMAC: p.HostMAC.String(),
		MTU: p.MTU, Labels: p.Labels,
		Rates: api.Rates{In: p.Rates.In, Out: p.Rates.Out, InBurst: p.Rates.InBurst,
			OutBurst: p.Rates.OutBurst},
		Created: p.Created,
	}
	if p.RuntimeMovesInterface {
		v.InnerIf = p.InnerIf()
	}
	for _, pub := range p.Publish {
		v.Publish = append(v.Publish,
			api.Publish{Proto: packet.Proto(pub.Proto).String(), Host: pub.Host,
				HostPort: pub.HostPort, Port: pub.Port})
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
