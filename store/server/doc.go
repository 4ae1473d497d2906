// Package server is the part of weir-store that serves hosts: it follows a store once and sends the
// changes to any number of connections. See docs/design/0008-cluster.md, sections 3, 6 and 7.
//
// It is a cache: it decides only what a certificate may do, has no state of its own and may be
// killed at any time. Its memory is bounded by the copy, the last 65,536 changes and the number of
// connections; a slow connection does not take more.
package server
