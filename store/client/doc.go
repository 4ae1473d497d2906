// Package client connects agents and administrators to the weir-stores. See
// docs/design/0008-cluster.md, section 7.
//
// A Client is a store.Store whose calls go over the wire. Follow keeps a copy up to date: it
// continues from the copy's revision, or loads the difference. One TLS connection serves both. When
// it ends or is silent, the next weir-store is tried.
package client
