package nl

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Weir's filter comes before others with the kernel's default priority, 49152, and leaves the low ones to who wants to come first.
const (
	filterPriority = 20
	filterHandle   = 1
)

// filterOf describes Weir's tc filter in one direction of a link.
func filterOf(link int, egress bool) *netlink.BpfFilter {
	parent := uint32(netlink.HANDLE_MIN_INGRESS)
	if egress {
		parent = netlink.HANDLE_MIN_EGRESS
	}
	return &netlink.BpfFilter{
		FilterAttrs:  netlink.FilterAttrs{LinkIndex: link, Parent: parent, Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: filterPriority},
		DirectAction: true,
	}
}

// SetFilter puts an eBPF program (by its file descriptor) at the ingress or egress of a link, in a filter below a clsact queueing discipline,
// which it adds if there is none. A filter of Weir that is there is replaced.
func (c *Conn) SetFilter(link int, egress bool, program int, name string) error {
	q := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
	err := change(fmt.Sprintf("add clsact to link %d", link), func() error {
		if err := c.h.QdiscAdd(q); err != unix.EEXIST {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	f := filterOf(link, egress)
	f.Fd, f.Name = program, name
	return change(fmt.Sprintf("set the filter of link %d", link), func() error { return c.h.FilterReplace(f) })
}

// DeleteFilter takes Weir's filter away. The clsact queueing discipline stays: others may use it, and empty it costs nothing.
// A filter, discipline or link that is not there is no error.
func (c *Conn) DeleteFilter(link int, egress bool) error {
	return change(fmt.Sprintf("delete the filter of link %d", link), func() error {
		switch err := c.h.FilterDel(filterOf(link, egress)); err {
		case unix.ENOENT, unix.EINVAL, unix.ENODEV:
			return nil
		default:
			return err
		}
	})
}
