module github.com/weirnet/weir

go 1.26.0

require (
	github.com/vishvananda/netlink v0.0.0
	go.etcd.io/etcd v0.0.0
)

replace (
	github.com/vishvananda/netlink => ./lib/netlink
	go.etcd.io/etcd => ./lib/etcd
)
