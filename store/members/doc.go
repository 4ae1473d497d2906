// Package members creates a cluster and lets hosts join and leave it. It has the transactions of
// weir-store on the documents of package cluster. See docs/design/0008-cluster.md, sections 3, 5
// and 6. It does not depend on a driver.
package members
