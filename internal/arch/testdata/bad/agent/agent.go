package agent

import _ "github.com/weirnet/weir/internal/nstest" // for tests and the demo only
