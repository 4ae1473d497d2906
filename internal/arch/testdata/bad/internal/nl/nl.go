package nl

import _ "github.com/vishvananda/netlink" // as it should be
