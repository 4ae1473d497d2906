module github.com/weirnet/weir

go 1.26.0

require (
	github.com/vishvananda/netlink v0.0.0
	github.com/prometheus/common v0.0.0
)

replace (
	github.com/vishvananda/netlink => ./lib/netlink
	github.com/prometheus/common => ./lib/prometheus
)
