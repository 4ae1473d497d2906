package nl

import "github.com/vishvananda/netlink"

// Library is the library's handle of a connection, for what only tests do to links.
func Library(c *Conn) *netlink.Handle { return c.h }

// WatchBuffered is Watch with a receive buffer of another size, so that a test can make the kernel
// lose notifications.
var WatchBuffered = watch

// RawLinks is Links as the library has it: whether the answer was whole has to be asked.
func (c *Conn) RawLinks() (count int, whole bool, err error) {
	list, err := c.h.LinkList()
	if interrupted(err) {
		return len(list), false, nil
	}
	return len(list), true, err
}
