package watch

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/packet"
)

// Flow tells what the node knows of a flow: its ends, its states, and what would happen to its
// first packet now. It changes nothing.
func (o *Observer) Flow(q api.FlowQuestion) (a api.Flow, err error) {
	proto, err := packet.ParseProto(q.Proto)
	if err != nil {
		return a, err
	}
	if !q.Src.IsValid() || !q.Dst.IsValid() || q.Src.Addr().Is4() != q.Dst.Addr().Is4() {
		return a, errors.New("a flow needs two addresses of one address family")
	}
	a.Version = api.Version
	if a.Src, err = o.flowEnd(q.Src); err != nil {
		return a, err
	}
	if a.Dst, err = o.flowEnd(q.Dst); err != nil {
		return a, err
	}
	if a.States, err = o.statesOf(proto, q.Src, q.Dst); err != nil {
		return a, err
	}
	why, err := o.config.Why(api.Why{Packet: firstPacket(q)})
	if err != nil {
		a.Unknown = err.Error()
		return a, nil
	}
	a.Why = &why
	return a, nil
}

// firstPacket writes the first packet of a flow as a question of why.
func firstPacket(q api.FlowQuestion) string {
	words := []string{"in"}
	if q.Hook == "out" {
		words[0] = "out"
	}
	for _, side := range [][2]string{{"recv", q.Recv}, {"xmit", q.Xmit}} {
		if side[1] != "" {
			words = append(words, side[0], strings.Join(strings.Fields(side[1]), "?"))
		}
	}
	end := func(a netip.AddrPort) string {
		if a.Port() == 0 || strings.Contains(q.Proto, "icmp") {
			return a.Addr().String()
		}
		return a.String()
	}
	return strings.Join(append(words, q.Proto, end(q.Src), "->", end(q.Dst)), " ")
}

// flowEnd tells what the node knows of an address.
func (o *Observer) flowEnd(at netip.AddrPort) (api.FlowEnd, error) {
	addr := at.Addr()
	e := api.FlowEnd{Addr: addr.String(), Port: at.Port(), Table: o.config.Rules.TableOf(addr)}
	pods, err := o.config.Pods.List()
	if err != nil {
		return e, err
	}
	for _, p := range pods.Pods {
		if slices.Contains(p.Addrs, addr) {
			e.Kind, e.Name, e.Labels = "pod", p.Name, p.Labels
			return e, nil
		}
	}
	if o.config.Links.IsMe(addr) {
		e.Kind = "host"
		return e, nil
	}
	has := func(r netip.Prefix) bool { return r.Contains(addr) }
	if !slices.ContainsFunc(o.config.Peers.Ranges(), has) {
		return e, nil
	}
	peers, err := o.config.Peers.List()
	if err != nil {
		return e, fmt.Errorf("list the peers: %w", err)
	}
	for _, p := range peers.Peers {
		if slices.ContainsFunc(p.Pods, has) {
			e.Kind, e.Name, e.Peer = "peer", p.Name, &p
		}
	}
	return e, nil
}
