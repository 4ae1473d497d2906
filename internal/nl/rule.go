package nl

import (
	"fmt"
	"net/netip"
	"slices"

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
	return change(fmt.Sprintf("add the routing rule from %s lookup %d", src, table),
		func() error { return c.h.RuleAdd(ruleOf(src, table)) }, unix.EEXIST)
}

// DeleteSourceRule takes back what AddSourceRule did.
func (c *Conn) DeleteSourceRule(src netip.Addr, table int) error {
	return change(fmt.Sprintf("delete the routing rule from %s lookup %d", src, table),
		func() error { return c.h.RuleDel(ruleOf(src, table)) }, unix.ENOENT)
}

// markPriority puts rules of a mark before those of sources.
const markPriority = 29999

func markRule(mark uint32, table int, six bool) *netlink.Rule {
	all := ^uint32(0)
	r := netlink.NewRule()
	r.Family, r.Table, r.Priority, r.Mark, r.Mask = unix.AF_INET, table, markPriority, mark, &all
	if six {
		r.Family = unix.AF_INET6
	}
	return r
}

// AddMarkRule has packets of one family with a mark ask a routing table before the main one.
func (c *Conn) AddMarkRule(mark uint32, table int, six bool) error {
	return change(fmt.Sprintf("add the routing rule fwmark %#x lookup %d", mark, table),
		func() error { return c.h.RuleAdd(markRule(mark, table, six)) }, unix.EEXIST)
}

// HasMarkRule reports whether there is a rule as AddMarkRule makes it.
func (c *Conn) HasMarkRule(mark uint32, table int, six bool) (bool, error) {
	want := markRule(mark, table, six)
	all, err := read("list routing rules", func() ([]netlink.Rule, error) {
		return c.h.RuleList(want.Family)
	})
	return slices.ContainsFunc(all, func(r netlink.Rule) bool {
		return r.Family == want.Family && r.Table == table && r.Mark == mark
	}), err
}

// DeleteMarkRule takes back what AddMarkRule did.
func (c *Conn) DeleteMarkRule(mark uint32, table int, six bool) error {
	return change(fmt.Sprintf("delete the routing rule fwmark %#x lookup %d", mark, table),
		func() error { return c.h.RuleDel(markRule(mark, table, six)) }, unix.ENOENT)
}
