// Package cluster is what the keys of the store mean. It says where things lie, who writes them,
// how the rules of several scopes become those of one host, and which range of addresses a host
// gets. docs/design/0008-cluster.md is the page to it. Everything but Claim is pure.
package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
)

// Root is the version of the layout. Below it, Watched is what every host keeps a copy of; the rest
// is read when it is needed.
const (
	Root    = "/weir/1/"
	Watched = Root + "w/"
	Asked   = Root + "x/"
)

// Keys and subtrees below Watched.
const (
	IdentityKey = Watched + "cluster" // id, epoch, certificates of the CA, supernets
	HeadKey     = Watched + "head"    // the version of the rules
	KeysKey     = Watched + "keys"    // keys of administrators: who signs versions
	MembersKey  = Watched + "members" // changes with every change of a host's roles
	IssuedKey   = Watched + "issued"  // certificates of administrators and feeds
	NodeTree    = Watched + "node/"   // certificates of hosts
	EndpointKey = Watched + "at/"     // where hosts are reached
	PodsTree    = Watched + "pods/"
	TableTree   = Watched + "table/"
	RemovedTree = Watched + "removed/" // what was removed on purpose
)

// Subtrees below Asked.
const (
	TextTree   = Asked + "text/"   // rules and tables of a scope, by digest
	RangeTree  = Asked + "range/"  // owners of ranges
	ReportTree = Asked + "report/" // what hosts enforce
	InviteTree = Asked + "invite/"
)

// maxName is how long the name of a host, role or table may be, as for a label of DNS.
const maxName = 63

// CheckName returns an error for a name that cannot be part of a key. Such a name has other
// characters than a-z, 0-9, "-", "_" and ".", does not begin with a letter or digit, or is empty or
// too long.
func CheckName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("the name %q has %d characters, 1 to %d are possible", name, len(name),
			maxName)
	}
	for i, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("-_.", rune(c))) {
			return fmt.Errorf("the name %q: use a-z and 0-9, behind the first also . and _ and -",
				name)
		}
	}
	return nil
}

// RangeKey returns the key of a range: / is not part of it.
func RangeKey(r netip.Prefix) string {
	return fmt.Sprintf("%s%s_%d", RangeTree, r.Masked().Addr(), r.Bits())
}

// parseRangeKey is the opposite of RangeKey.
func parseRangeKey(key string) (netip.Prefix, error) {
	addr, bits, _ := strings.Cut(strings.TrimPrefix(key, RangeTree), "_")
	r, err := netip.ParsePrefix(addr + "/" + bits)
	if err != nil || RangeKey(r) != key {
		return netip.Prefix{}, fmt.Errorf("%s is not the key of a range", key)
	}
	return r, nil
}

// HostGrants returns all that a host may do: read what every host keeps, and texts; write where it
// is, its pods and its report.
func HostGrants(name string) []store.Grant {
	return []store.Grant{
		{Name: Watched},
		{Name: TextTree},
		{Name: EndpointKey + name, Write: true},
		{Name: PodsTree + name + "/", Write: true},
		{Name: ReportTree + name, Write: true},
	}
}

// FeedGrants returns what a program may do that maintains one table, such as a list of addresses to
// refuse.
func FeedGrants(table string) []store.Grant {
	return []store.Grant{{Name: TableTree + table + "/", Write: true}}
}

// AdminGrants returns what an administrator may do. Certificates of hosts are not part of it: they
// carry the CA's signature, and weir-store writes them.
func AdminGrants() []store.Grant {
	return []store.Grant{
		{Name: Watched},
		{Name: HeadKey, Write: true},
		{Name: KeysKey, Write: true},
		{Name: TableTree, Write: true},
		{Name: RemovedTree, Write: true}, // removal records of hosts: AdminMayWrite
		{Name: TextTree, Write: true},
		{Name: InviteTree, Write: true},
		{Name: ReportTree},
		{Name: RangeTree},
	}
}

// Guard returns what a host holds back (store.Guarded). These are removals of hosts, their pods,
// their endpoints and tables, unless RemovedTree has what was removed. They are also removals of
// single keys, which nothing removes, such as HeadKey: without it a host would have no rules.
func Guard() store.Guard { return store.Guard{Kind: kind, Meant: meant} }

// Guard returns what this host holds back. A removal record below RemovedTree explains the removal
// of a host if it is about the certificate that counts here: an earlier host of its name had
// another one. With keys of admins, one of them has signed it, and no host, and no endpoints of
// one, goes without it.
func (d *Desired) Guard() store.Guard {
	return store.Guard{Kind: kind, Meant: d.meant, Demands: func(kind string) bool {
		return ofHost(kind) && d.trust.Admins.Locked()
	}}
}

// ofHost reports whether a kind is what others need to reach a host.
func ofHost(kind string) bool { return kind == "node" || kind == "at" }

// meant is meant by what this host believes.
func (d *Desired) meant(stored *store.Copy, key string) bool {
	var node *Node
	k := kind(key)
	if k == "pods" || ofHost(k) {
		if node = d.Node(nameOf(key)); node == nil {
			return true // nothing of it counts
		}
	}
	record, ok := stored.Get(removalKey(key))
	if !ok {
		return false
	}
	r, err := Decode[RemovalRecord](record.Value)
	return err == nil && r.Verify(record.Key, d.trust.Admins.Keys) == nil &&
		(node == nil || slices.Contains(r.Serials, node.Serial))
}

// kind returns the first part of a key below Watched: a single key is a kind of its own.
func kind(key string) string {
	of, _, _ := strings.Cut(strings.TrimPrefix(key, Watched), "/")
	if of == "removed" {
		return ""
	}
	return of
}

// meant reports whether a host or a table was removed on purpose: RemovedTree names it.
func meant(stored *store.Copy, key string) bool {
	_, ok := stored.Get(removalKey(key))
	return ok
}

// removalKey returns the key of the removal record that explains why another one is gone.
func removalKey(key string) string {
	of := "node"
	if kind(key) == "table" {
		of = "table"
	}
	return RemovedTree + of + "/" + nameOf(key)
}

// nameOf returns the second part of a key below Watched: the name of a host or of a table.
func nameOf(key string) string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(key, Watched), "/")
	name, _, _ := strings.Cut(rest, "/")
	return name
}
