package nl

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// PacketRule is a routing rule that depends on more of a packet than PacketRules says.
type PacketRule struct {
	Priority uint32
	Mark     uint32
	Table    uint32
}

// respected are the attributes of a routing rule that depend on nothing of a packet but its
// addresses and its interface, or on nothing at all. The user of a forwarded packet is always that
// of the namespace.
var respected = map[uint16]bool{unix.FRA_UNSPEC: true, unix.FRA_DST: true, unix.FRA_SRC: true,
	unix.FRA_IIFNAME: true, unix.FRA_GOTO: true, unix.FRA_PRIORITY: true, unix.FRA_FLOW: true,
	unix.FRA_SUPPRESS_IFGROUP: true, unix.FRA_SUPPRESS_PREFIXLEN: true, unix.FRA_TABLE: true,
	unix.FRA_OIFNAME: true, unix.FRA_PAD: true, unix.FRA_L3MDEV: true, unix.FRA_UID_RANGE: true,
	unix.FRA_PROTOCOL: true}

// PacketRules lists the routing rules, in the namespace of the calling thread, that depend on more
// of a packet than its interface, its addresses and for IPv4 its TOS. They depend on ports, the
// protocol, a mark or what this package does not know.
func PacketRules() (all []PacketRule, err error) {
	answer, err := read("list the routing rules", func() ([][]byte, error) {
		r := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
		r.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		return r.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
	})
	if errors.Is(err, unix.EOPNOTSUPP) { // a kernel without routing rules
		return nil, nil
	}
	for _, m := range answer {
		if rule, depends := packetRule(m); depends {
			all = append(all, rule)
		}
	}
	return all, err
}

// packetRule reads a message about a routing rule, which begins with struct fib_rule_hdr: family,
// dst_len, src_len, tos and others. What it cannot read depends on the packet.
func packetRule(m []byte) (rule PacketRule, depends bool) {
	const header = 12
	if len(m) < header {
		return rule, true
	}
	family, tos := m[0], m[3]
	if family != unix.AF_INET && family != unix.AF_INET6 {
		return rule, false
	}
	depends = tos != 0 && family == unix.AF_INET6
	list, err := nl.ParseRouteAttr(m[header:])
	if err != nil {
		return rule, true
	}
	for _, a := range list {
		kind := a.Attr.Type & nlaType
		depends = depends || !respected[kind]
		if len(a.Value) != 4 {
			continue
		}
		switch value := binary.NativeEndian.Uint32(a.Value); kind {
		case unix.FRA_PRIORITY:
			rule.Priority = value
		case unix.FRA_FWMARK:
			rule.Mark = value
		case unix.FRA_TABLE:
			rule.Table = value
		}
	}
	return rule, depends
}

// WatchRules calls changed once at the beginning, and then whenever routing rules in the namespace
// of the calling thread may have changed. It does so at most about twenty times a second, until ctx
// ends.
func WatchRules(ctx context.Context, changed func()) error {
	return watchGroups(ctx, "watch the routing rules", changed, unix.NETLINK_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
}
