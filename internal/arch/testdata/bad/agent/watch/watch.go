// Package watch is a part of a node.
package watch
