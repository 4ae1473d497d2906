package nl

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// rulePriority puts rules of a source before that of the main table, 32766.
const rulePriority = 30000

func ruleOf(src netip.Addr, table int) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Table, r.Priority = familyOf(src), table, rulePriority
	r.Src = netOf(netip.PrefixFrom(src, src.BitLen()))
	return r
}

// AddSourceRule has packets from one address ask a routing table before the main one.
func (c *Conn) AddSourceRule(src netip.Addr, table int) error {
	return change(fmt.Sprintf("have packets from %s ask table %d", src, table),
		func() error { return c.h.RuleAdd(ruleOf(src, table)) }, unix.EEXIST)
}

// DeleteSourceRule takes back what AddSourceRule did.
func (c *Conn) DeleteSourceRule(src netip.Addr, table int) error {
	return change(fmt.Sprintf("stop packets from %s asking table %d", src, table),
		func() error { return c.h.RuleDel(ruleOf(src, table)) }, unix.ENOENT)
}
