module github.com/weirnet/weir/peers

go 1.26.6

require (
	github.com/tailscale/wireguard-go v0.0.0-20260928213032-417aef361226
	github.com/weirnet/weir v0.0.0
	golang.org/x/net v0.62.0
	golang.zx2c4.com/wireguard v0.0.0-20260522210424-ecfc5a8d5446
)

require (
	github.com/vishvananda/netlink v1.3.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.zx2c4.com/wintun v0.0.0-20230126152724-0fa3db229ce2 // indirect
	tailscale.com v1.102.5 // indirect
)

replace github.com/weirnet/weir => ..
