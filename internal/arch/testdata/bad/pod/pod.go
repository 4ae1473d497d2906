package pod

import _ "github.com/vishvananda/netlink" // past the door
