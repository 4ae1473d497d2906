package nl

import (
	"context"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LinksWithQdisc lists the links that have a queueing discipline, each once. What every link may
// have does not count: noqueue, and clsact, which only holds filters.
func (c *Conn) LinksWithQdisc() ([]int, error) {
	list, err := read("list queueing disciplines", func() ([]netlink.Qdisc, error) {
		return c.h.QdiscList(nil)
	})
	if err != nil {
		return nil, err
	}
	var all []int
	seen := map[int]bool{}
	for _, q := range list {
		link := q.Attrs().LinkIndex
		if kind := q.Type(); kind != "noqueue" && kind != "clsact" && !seen[link] {
			seen[link] = true
			all = append(all, link)
		}
	}
	return all, nil
}

// WatchQdiscs calls changed once at the beginning, and then whenever queueing disciplines or
// filters in the namespace of the calling thread may have changed. It does so at most about twenty
// times a second, until ctx ends.
func WatchQdiscs(ctx context.Context, changed func()) error {
	return watchGroups(ctx, "watch queueing disciplines", changed, unix.NETLINK_ROUTE,
		unix.RTNLGRP_TC)
}
