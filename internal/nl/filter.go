package nl

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Weir's filters come before others with the kernel's default priority, 49152, and leave lower ones
// to programs that want to come first.
const (
	filterPriority = 20
	filterHandle   = 1
)

// FilterPlace is where a filter of Weir hangs. A link has one at each place.
type FilterPlace int

// The places. What passes the filter before egress comes to the one of egress.
const (
	Ingress FilterPlace = iota
	Egress
	BeforeEgress
)

// filterOf describes Weir's tc filter at a place of a link.
func filterOf(link int, at FilterPlace) *netlink.BpfFilter {
	parent, priority := uint32(netlink.HANDLE_MIN_EGRESS), uint16(filterPriority)
	switch at {
	case Ingress:
		parent = netlink.HANDLE_MIN_INGRESS
	case BeforeEgress:
		priority--
	}
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: link, Parent: parent, Handle: filterHandle,
			Protocol: unix.ETH_P_ALL, Priority: priority},
		DirectAction: true,
	}
}

// clsactOf describes the queueing discipline that filters hang below.
func clsactOf(link int) *netlink.GenericQdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(0xffff, 0),
			Parent: netlink.HANDLE_CLSACT},
		QdiscType: "clsact",
	}
}

// AddClsact gives a link the queueing discipline that filters hang below, unless it is there.
func (c *Conn) AddClsact(link int) error {
	return change(fmt.Sprintf("add clsact to link %d", link), func() error {
		if err := c.h.QdiscAdd(clsactOf(link)); err != unix.EEXIST {
			return err
		}
		return nil
	})
}

// SetFilter puts an eBPF program (by its file descriptor) at a place of a link, in a filter below a
// clsact queueing discipline, which it adds if there is none. A filter of Weir that is there is
// replaced.
func (c *Conn) SetFilter(link int, at FilterPlace, program int, name string) error {
	if err := c.AddClsact(link); err != nil {
		return err
	}
	f := filterOf(link, at)
	f.Fd, f.Name = program, name
	return change(fmt.Sprintf("set the filter of link %d", link), func() error {
		return c.h.FilterReplace(f)
	})
}

// DeleteFilter takes Weir's filter at a place away, and the clsact queueing discipline with it when
// no filter is left below that. A missing filter, discipline or link is not an error.
func (c *Conn) DeleteFilter(link int, at FilterPlace) error {
	err := change(fmt.Sprintf("delete the filter of link %d", link), func() error {
		return ifThere(c.h.FilterDel(filterOf(link, at)))
	})
	if err != nil {
		return err
	}
	for _, side := range []FilterPlace{Ingress, Egress} {
		left, err := read(fmt.Sprintf("list filters of link %d", link),
			func() ([]netlink.Filter, error) {
				all, err := c.h.FilterList(byIndex(link), filterOf(link, side).Parent)
				return all, ifThere(err)
			})
		if err != nil || len(left) > 0 {
			return err
		}
	}
	return change(fmt.Sprintf("delete clsact of link %d", link), func() error {
		return ifThere(c.h.QdiscDel(clsactOf(link)))
	})
}

// ifThere forgives that a filter, its discipline or its link is not there.
func ifThere(err error) error {
	switch err {
	case unix.ENOENT, unix.EINVAL, unix.ENODEV:
		return nil
	}
	return err
}

// FilterAt returns the filter at the place of Weir's, the zero Filter if there is none. Any program
// may have put it there, under any name.
func (c *Conn) FilterAt(link int, at FilterPlace) (found Filter, err error) {
	want := filterOf(link, at)
	err = change(fmt.Sprintf("list the filters of link %d", link), func() error {
		found = Filter{}
		all, err := c.h.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: link}},
			want.Parent)
		for _, f := range all {
			if b, ok := f.(*netlink.BpfFilter); ok && b.Priority == want.Priority &&
				b.Handle == want.Handle {
				found = Filter{Kind: f.Type(), Name: b.Name, Program: uint32(b.Id)}
			}
		}
		return ifThere(err)
	})
	return found, err
}

// Filter is a tc filter.
type Filter struct {
	Kind    string // "bpf", "flower", ...
	Name    string // of a program of eBPF, as its owner has called it
	Program uint32 // the kernel's id of that, or 0
}

// FiltersBefore returns the filters that packets meet before Weir's filter at a place of a link, in
// that order.
func (c *Conn) FiltersBefore(link int, at FilterPlace) ([]Filter, error) {
	ours := filterOf(link, at)
	list, err := read(fmt.Sprintf("list the filters of link %d", link),
		func() ([]netlink.Filter, error) {
			all, err := c.h.FilterList(byIndex(link), ours.Parent)
			return all, ifThere(err)
		})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b netlink.Filter) int {
		return cmp.Compare(a.Attrs().Priority, b.Attrs().Priority)
	})
	var all []Filter
	for _, f := range list {
		if f.Attrs().Priority >= ours.Priority {
			break
		}
		one := Filter{Kind: f.Type()}
		if b, ok := f.(*netlink.BpfFilter); ok {
			one.Name, one.Program = b.Name, uint32(b.Id)
		}
		all = append(all, one)
	}
	return all, nil
}
