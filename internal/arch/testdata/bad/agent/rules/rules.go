// Package rules is a part of a node that imports another one.
package rules

import _ "github.com/weirnet/weir/agent/host" // another part
