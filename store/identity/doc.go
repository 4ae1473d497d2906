// Package identity is who is who in a cluster: certificates of hosts, administrators, feeds and
// weir-stores, the CA that signs them, and the tokens that hosts join with.
// docs/design/0008-cluster.md, sections 3 and 6, is the page to it.
//
// A certificate is for one ID, which is its common name. Its serial number is 16 random bytes: what
// is removed is a serial number, not a name. No clock is read: certificates are valid whatever a
// clock shows, and are verified as of one day, since a board without a clock must start.
// TLS is 1.3 without resumption, so that each connection proves its key.
package identity
