// Package examples holds rule files to start from. They are embedded in the binary, so that `weir
// demo` shows the same text.
package examples

import _ "embed"

// Web are the rules of a web server, web.rules.
//
//go:embed web.rules
var Web string

// Left and Right are the rules of two hosts with containers, left.rules and right.rules.
var (
	//go:embed left.rules
	Left string
	//go:embed right.rules
	Right string
)

// The rules of a cluster by scope: of all hosts, and of those with the roles web and db.
var (
	//go:embed cluster/all.rules
	ClusterAll string
	//go:embed cluster/web.rules
	ClusterWeb string
	//go:embed cluster/db.rules
	ClusterDB string
)
