// Package examples holds rule files to start from. They are part of the binary, so that `weir demo` shows the very text
// that stands here.
package examples

import _ "embed"

// Web are the rules of a web server, web.rules.
//
//go:embed web.rules
var Web string
