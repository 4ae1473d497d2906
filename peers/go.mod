module github.com/weirnet/weir/peers

go 1.26.0

require (
	github.com/weirnet/weir v0.0.0
	golang.org/x/net v0.62.0
)

require golang.org/x/sys v0.49.0 // indirect

replace github.com/weirnet/weir => ..
