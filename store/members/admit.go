package members

import (
	"fmt"
	"slices"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/server"
)

// What a certificate of a host or a feed may write and read. The store keeps what was written for a
// minute at least, in a database of 1 GiB. Without a limit one stolen host fills that within a
// minute. Then the database takes no change from anyone, not even the removal of that host. A chunk
// of 32 pods has about 5 KiB, so a host replaces six pods a second for ever, and some thousand at
// once. What is read costs processor time of etcd and of weir-store.
const (
	writeRate = 32 << 10 // bytes in a second
	hostBurst = 16 << 20 // bytes at once
	readRate  = 1 << 20
	readBurst = 128 << 20 // all buckets of a table, or four times all pods of a host
	feedBurst = 64 << 20  // a table of a million prefixes
)

// Admit decides what a certificate may do: server.Config.Admit. A host needs its entry below
// cluster.NodeTree, an administrator or a feed one in cluster.IssuedKey, with the serial number of
// the certificate.
func Admit(get server.Get, p identity.Peer) (server.Admission, error) {
	switch p.ID.Kind {
	case identity.Host:
		return admitHost(get, p)
	case identity.Admin, identity.Feed:
		return admitIssued(get, p)
	}
	return server.Admission{}, fmt.Errorf("%v may not connect to the store", p.ID)
}

func admitHost(get server.Get, p identity.Peer) (a server.Admission, err error) {
	a.Key = cluster.NodeTree + p.ID.Name
	e, ok := get(a.Key)
	if !ok {
		return server.Admission{}, fmt.Errorf("host %s is not a member of the cluster", p.ID.Name)
	}
	node, err := cluster.Decode[cluster.Node](e.Value)
	if err != nil {
		return server.Admission{}, fmt.Errorf("%s: %w", a.Key, err)
	}
	if node.Name != p.ID.Name || node.Serial != cluster.Serial(p.Serial) ||
		!slices.Equal(node.TLS[:], p.Key) {
		return server.Admission{}, fmt.Errorf("host %s has another certificate now", p.ID.Name)
	}
	a.Revision, a.Grants = e.Revision, cluster.HostGrants(node.Name)
	a.Check = func(_ server.Get, t store.Txn) error { return cluster.HostMayWrite(node.Name, t) }
	a.CheckRead = func(of string, watch bool) error {
		return cluster.HostMayRead(node.Name, of, watch)
	}
	a.Writes = server.Budget{Rate: writeRate, Burst: hostBurst}
	a.Reads = server.Budget{Rate: readRate, Burst: readBurst}
	a.FillLimit = cluster.HostFillLimit
	return a, nil
}

func admitIssued(get server.Get, p identity.Peer) (a server.Admission, err error) {
	a.Key = cluster.IssuedKey
	e, ok := get(a.Key)
	if !ok {
		return server.Admission{}, fmt.Errorf("%v: no certificate was issued", p.ID)
	}
	issued, err := cluster.Decode[cluster.Issued](e.Value)
	if err != nil {
		return server.Admission{}, fmt.Errorf("%s: %w", a.Key, err)
	}
	want := cluster.IssuedCertificate{ID: p.ID.String(), Serial: cluster.Serial(p.Serial)}
	if !slices.Contains(issued.Certificates, want) {
		return server.Admission{}, fmt.Errorf("the certificate of %v is not in force", p.ID)
	}
	a.Revision, a.Grants, a.FillLimit = e.Revision, cluster.AdminGrants(), cluster.AdminFillLimit
	a.Check = func(get server.Get, t store.Txn) error { return cluster.AdminMayWrite(get, t) }
	if p.ID.Kind == identity.Feed {
		a.Grants = cluster.FeedGrants(p.ID.Name)
		a.Check = func(_ server.Get, t store.Txn) error {
			return cluster.FeedMayWrite(p.ID.Name, t)
		}
		a.CheckRead = cluster.FeedMayRead
		a.Writes = server.Budget{Rate: writeRate, Burst: feedBurst}
		a.Reads = server.Budget{Rate: readRate, Burst: readBurst}
		a.FillLimit = cluster.HostFillLimit
	}
	return a, nil
}

// ClusterOf returns the id and the epoch of the cluster: server.Config.Cluster.
func ClusterOf(get server.Get) (id string, epoch uint64, err error) {
	e, ok := get(cluster.IdentityKey)
	if !ok {
		return "", 0, fmt.Errorf("%s does not exist: run weir cluster init", cluster.IdentityKey)
	}
	doc, err := cluster.Decode[cluster.Identity](e.Value)
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", cluster.IdentityKey, err)
	}
	return doc.ID.String(), doc.Epoch, nil
}
