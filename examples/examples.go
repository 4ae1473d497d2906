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
