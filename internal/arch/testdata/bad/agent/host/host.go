// Package host is a part of a node.
package host
