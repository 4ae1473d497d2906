// Package identity has the identities of a cluster: certificates of hosts, administrators, feeds
// and weir-stores, the CA that signs them, and the tokens that hosts join with. See
// docs/design/0008-cluster.md, sections 3 and 6.
//
// A certificate is for one ID, which is its common name. Its serial number is 16 random bytes; a
// removal names the serial number, not the name. No clock is read: certificates are verified as of
// a fixed date, because a host without a clock must start. TLS is 1.3 without resumption, so that
// each connection proves its key.
package identity
