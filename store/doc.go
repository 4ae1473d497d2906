// Package store is the desired state that hosts share: keys with values. Each transaction has a
// revision. docs/design/0008-cluster.md says what the keys mean and who writes them.
//
// # The store and the copy
//
// A Store is a driver for a back end: etcd (module store/etcd), or the reference model in package
// storetest, whose conformance suite every driver passes. A Copy is the part of it that a host
// keeps. A Follower reads the store once, then applies one Batch after the other. When the store
// cannot continue from the copy's revision, the follower reads everything again and applies the
// difference.
//
// A Guarded copy is between the store and what the host enforces. It holds back a step that would
// remove more than a third of the keys of a kind that the host knows.
//
// # Dependencies
//
// It uses only the standard library, because every agent contains it. Time and randomness are
// passed in.
package store
