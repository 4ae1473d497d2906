package netfilter

import (
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// rejection is what answers a packet: a TCP reset, or ICMP unreachable of a code. -1 means that
// packets of that family do not match.
type rejection struct {
	reset  bool
	v4, v6 int
}

// rejections are the words of iptables, ip6tables and nft.
var rejections = map[string]rejection{
	"tcp-reset":              {reset: true},
	"tcp reset":              {reset: true},
	"icmp-net-unreachable":   {v4: 0, v6: -1},
	"icmp-host-unreachable":  {v4: 1, v6: -1},
	"icmp-proto-unreachable": {v4: 2, v6: -1},
	"icmp-port-unreachable":  {v4: 3, v6: -1},
	"icmp-net-prohibited":    {v4: 9, v6: -1},
	"icmp-host-prohibited":   {v4: 10, v6: -1},
	"icmp-admin-prohibited":  {v4: 13, v6: -1},
	"icmp6-no-route":         {v4: -1, v6: 0},
	"no-route":               {v4: -1, v6: 0},
	"icmp6-adm-prohibited":   {v4: -1, v6: 1},
	"adm-prohibited":         {v4: -1, v6: 1},
	"icmp6-addr-unreachable": {v4: -1, v6: 3},
	"addr-unreach":           {v4: -1, v6: 3},
	"icmp6-port-unreachable": {v4: -1, v6: 4},
	"port-unreach":           {v4: -1, v6: 4},
	"icmp6-policy-fail":      {v4: -1, v6: 5},
	"icmp6-reject-route":     {v4: -1, v6: 6},

	"icmp net-unreachable":    {v4: 0, v6: -1},
	"icmp host-unreachable":   {v4: 1, v6: -1},
	"icmp prot-unreachable":   {v4: 2, v6: -1},
	"icmp port-unreachable":   {v4: 3, v6: -1},
	"icmp net-prohibited":     {v4: 9, v6: -1},
	"icmp host-prohibited":    {v4: 10, v6: -1},
	"icmp admin-prohibited":   {v4: 13, v6: -1},
	"icmpv6 no-route":         {v4: -1, v6: 0},
	"icmpv6 admin-prohibited": {v4: -1, v6: 1},
	"icmpv6 addr-unreachable": {v4: -1, v6: 3},
	"icmpv6 port-unreachable": {v4: -1, v6: 4},
	"icmpv6 policy-fail":      {v4: -1, v6: 5},
	"icmpv6 reject-route":     {v4: -1, v6: 6},
	"icmpx no-route":          {v4: 0, v6: 0},
	"icmpx host-unreachable":  {v4: 1, v6: 3},
	"icmpx admin-prohibited":  {v4: 13, v6: 1},
	"icmpx port-unreachable":  {v4: 3, v6: 4},
	"":                        {v4: 3, v6: 4},
}

// answer is a rule of a rejection.
type answer struct {
	action  rule.Action
	clauses []rule.Clause
}

// actions returns the rules that answer packets of the families.
func (r rejection) actions(families int, p packet.Proto) (all []answer) {
	if r.reset {
		return []answer{{action: rule.Action{Op: op.ActionReset}}}
	}
	if p == packet.ProtoICMP {
		families &= ipv4
	}
	if p == packet.ProtoICMPv6 {
		families &= ipv6
	}
	one := families != bothFamilies
	if families&ipv4 != 0 && r.v4 >= 0 {
		a := answer{action: rule.Action{Op: op.ActionUnreach, Arg: uint32(r.v4)}}
		if !one {
			a.clauses = version(ipv4)
		}
		all = append(all, a)
	}
	if families&ipv6 != 0 && r.v6 >= 0 {
		a := answer{action: rule.Action{Op: op.ActionUnreach6, Arg: uint32(r.v6)}}
		if !one {
			a.clauses = version(ipv6)
		}
		all = append(all, a)
	}
	return all
}
