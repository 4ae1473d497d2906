package host

import (
	_ "github.com/weirnet/weir/agent/watch" // another part, in a test
)
