package pod

import _ "github.com/vishvananda/netlink" // not through its only importer
