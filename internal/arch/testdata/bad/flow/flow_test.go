package flow

import (
	_ "github.com/weirnet/weir/agent"           // to the right
	_ "github.com/weirnet/weir/internal/nstest" // as it should be
)
