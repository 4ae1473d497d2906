// Package server is the part of weir-store that serves hosts: it follows a store once and gives
// what changes to any number of connections. docs/design/0008-cluster.md, sections 3, 6 and 7, is
// the page to it.
//
// It is a cache: it decides nothing but what a certificate may do, has no state of its own and may
// be killed at any time. What it keeps is bounded by the copy, by the last 65,536 changes and by
// the number of connections; a connection that does not keep up adds nothing to that.
package server
