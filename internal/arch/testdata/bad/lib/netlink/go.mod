module github.com/vishvananda/netlink
