package netlink
