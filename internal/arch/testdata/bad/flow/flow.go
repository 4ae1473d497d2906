package flow

import _ "github.com/weirnet/weir/packet" // in order, but reaches netlink through it
