package soft

import _ "github.com/weirnet/weir/firewall/kernel" // a neighbour
