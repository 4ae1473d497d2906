// Package members is how a cluster begins, and how hosts join and leave it: the transactions of
// weir-store on the documents of package cluster. docs/design/0008-cluster.md, sections 3, 5 and 6,
// is the page to it. It does not depend on a driver.
package members
