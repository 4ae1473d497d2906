package members

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// PriorState is what a store host knows of the store before it was restored.
type PriorState struct {
	Epoch        uint64           // the highest one
	RevokedHosts []cluster.Serial // of hosts that were removed, or joined again
	// RevokedOthers are of admins and feeds. An attacker in the store may have written them, so
	// they revoke no host.
	RevokedOthers []cluster.Serial
	Admins        cluster.KeyList // whose signature hosts demand, as far as this host knows
	// Identity is what this host can say of the cluster without the store; zero: nothing.
	Identity cluster.Identity
}

// Restoration is a backup that is ready to be written.
type Restoration struct {
	Epoch uint64 // the one that begins
	// Replaced says what took the place of documents that an attacker in the store must have
	// written.
	Replaced []string
	// Stores are the addresses of weir-stores that the backup has beside that of this host. They
	// are left out: the list has no signature.
	Stores     []string
	rest, last []store.Entry
}

// PrepareRestore makes a backup ready for a new epoch, later than that of the backup and that
// before. The version of the rules gets the first number of the epoch, so that every host loads it.
// What was revoked before, or in the backup, stays revoked. In a cluster with keys of
// administrators, admin signs the version and what was revoked. An attacker in the store may have
// written what the backup has: of that nothing gets the signature that did not have one.
func PrepareRestore(entries []store.Entry, before PriorState, admin ed25519.PrivateKey) (
	*Restoration, error) {
	b := backup{before: before, admin: admin,
		entries: slices.DeleteFunc(slices.Clone(entries), func(e store.Entry) bool {
			return isInvite(e) || !writable(e)
		})}
	if err := b.decode(); err != nil {
		return nil, err
	}
	if err := b.checkSignatures(); err != nil {
		return nil, err
	}
	if err := b.revoke(); err != nil {
		return nil, err
	}
	return b.begin()
}

// backup is one that is being prepared.
type backup struct {
	entries  []store.Entry
	before   PriorState
	admin    ed25519.PrivateKey
	identity *cluster.Identity
	head     *cluster.Head // nil: no rules
	keys     cluster.AdminKeys
	list     cluster.KeyList // whose signatures count
	noKeys   error           // why keys is not a document; nil: it is one
	replaced []string        // Restoration.Replaced
}

// What to do about a backup with a version that hosts would refuse, and about one with a document
// of a later Weir. An attacker in the store can write such a document as well.
const (
	otherBackup = "take an earlier backup, the copy of a host (weir cluster init --from-copy)"
	otherRules  = otherBackup + ", or restore without the rules (-without-rules), which hosts keep"
	laterWeir   = "update weir-store; if no later one has run, someone else has written it: " +
		otherBackup
)

// decode reads the documents that are about the whole cluster.
func (b *backup) decode() (err error) {
	noIdentity := errors.New("the backup does not have it")
	for _, e := range b.entries {
		switch e.Key {
		case cluster.KeysKey:
			b.keys, err = cluster.Decode[cluster.AdminKeys](e.Value)
			if errors.Is(err, cluster.ErrDocument) {
				b.keys, b.noKeys, err = cluster.AdminKeys{}, err, nil
			}
		case cluster.HeadKey:
			b.head, err = decoded[cluster.Head](e)
		case cluster.IdentityKey:
			b.identity, noIdentity = decoded[cluster.Identity](e)
			if errors.Is(noIdentity, cluster.ErrNewer) {
				err = noIdentity
			}
		}
		switch {
		case errors.Is(err, cluster.ErrNewer):
			return fmt.Errorf("%s: %w: %s", e.Key, err, laterWeir)
		case err != nil && e.Key == cluster.HeadKey:
			return fmt.Errorf("%s: %w: %s", e.Key, err, otherRules)
		case err != nil:
			return fmt.Errorf("%s: %w", e.Key, err)
		}
	}
	if noIdentity != nil && b.before.Identity.ID == (cluster.Serial{}) {
		return fmt.Errorf("%s: %w", cluster.IdentityKey, noIdentity)
	}
	if noIdentity != nil {
		b.ownIdentity(noIdentity)
	}
	if own := b.before.Identity.ID; own != (cluster.Serial{}) && own != b.identity.ID {
		return fmt.Errorf("the backup is of cluster %v, and this store host of %v, whose hosts "+
			"refuse that: take another backup, or the copy of a host (weir cluster init "+
			"--from-copy)", b.identity.ID, own)
	}
	return nil
}

// ownIdentity has what this host knows take the place of an identity that is not a document.
func (b *backup) ownIdentity(why error) {
	doc := b.before.Identity
	doc.Epoch = max(b.before.Epoch, 1)
	if b.before.Epoch == 0 && b.head != nil {
		doc.Epoch = b.head.Number.Epoch
	}
	b.identity = &doc
	b.replaced = append(b.replaced, fmt.Sprintf("%s is made again from what this host knows; "+
		"weir cluster grow adds the other weir-stores: %v", cluster.IdentityKey, why))
}

// decoded returns the document of an entry.
func decoded[T any, D interface {
	*T
	cluster.Document
}](e store.Entry) (*T, error) {
	doc, err := cluster.Decode[T, D](e.Value)
	return &doc, err
}

// checkSignatures finds the list of keys that hosts demand, and refuses a version that none of them
// signed. The keys of an older backup count less than those that this host knows. If it knows none,
// an attacker may have written those of the backup: only what the administrator has signed who
// signs again counts then.
func (b *backup) checkSignatures() (err error) {
	b.list = b.keys.Newest()
	bad := b.noKeys
	if b.before.Admins.Locked() {
		b.list, err = b.before.Admins.Follow(b.identity.ID, &b.keys)
		if bad == nil {
			bad = err
		}
	}
	if bad != nil {
		if err := b.replaceKeys(bad); err != nil {
			return err
		}
	}
	switch {
	case !b.list.Locked() && b.admin != nil: // each removal would count, and would be signed
		return errors.New("nothing has to be signed: neither the backup nor this host (file " +
			"keys) has keys of administrators. If hosts demand signed rules, restore on a store " +
			"host that has the file keys, or with the copy of a host (weir cluster init " +
			"--from-copy); if they do not, leave -sign away")
	case !b.list.Locked():
		return nil
	case b.admin == nil:
		return errors.New("hosts demand that an administrator signs the rules: restore with the " +
			"key of one; if the rules were never signed, someone else has written the keys: " +
			"leave them out (-without-keys)")
	}
	own := cluster.Key(b.admin.Public().(ed25519.PublicKey))
	if !b.list.Has(own) {
		return errors.New("hosts demand the signature of another administrator: restore with " +
			"the key of that one")
	}
	if !b.before.Admins.Locked() {
		b.list.Keys = []cluster.Key{own}
	}
	if b.head == nil {
		return nil
	}
	if err := b.head.Verify(b.list.Keys); err != nil {
		return fmt.Errorf("version %v of the backup: %w: %s", b.head.Number, err, otherRules)
	}
	return nil
}

// signed returns the removal record, and reports whether it counts. One that is not a document does
// not, and has no serial numbers: hosts do not believe it either.
func (b *backup) signed(e store.Entry) (record cluster.RemovalRecord, counts bool) {
	record, err := cluster.Decode[cluster.RemovalRecord](e.Value)
	return record, err == nil && record.Verify(e.Key, b.list.Keys) == nil
}

// begin divides the entries into those that stay as they are, and the identity and the head, which
// belong to the new epoch.
func (b *backup) begin() (*Restoration, error) {
	r := &Restoration{Replaced: b.replaced}
	r.rest = slices.DeleteFunc(b.entries, func(e store.Entry) bool {
		return e.Key == cluster.IdentityKey || e.Key == cluster.HeadKey
	})
	had, err := Epoch(b.before.Epoch, b.identity, b.head, b.list.Keys)
	if err != nil && b.before.Epoch == 0 {
		return nil, fmt.Errorf("the epoch of the backup is not valid: %w", err)
	}
	// Without a record of this host, other hosts may be in the one of the identity.
	if b.before.Epoch == 0 && cluster.CheckEpoch(1, b.identity.Epoch) == nil {
		had = max(had, b.identity.Epoch)
	}
	r.Epoch = max(had, 1) + 1
	doc := *b.identity
	doc.Epoch = r.Epoch
	if own := b.before.Identity.Stores; len(own) > 0 {
		r.Stores = slices.DeleteFunc(slices.Clone(doc.Stores), func(address string) bool {
			return slices.Contains(own, address)
		})
		doc.Stores = own
	}
	e, err := entry(cluster.IdentityKey, &doc)
	if r.last = append(r.last, e); err != nil || b.head == nil {
		return r, err
	}
	head := b.head
	if head.Trial != nil {
		head = &head.Trial.Revert // a version on trial is not begun with
	}
	head = &cluster.Head{Scopes: head.Scopes, By: head.By,
		Number: cluster.Number{Epoch: r.Epoch, Count: 1}}
	if b.list.Locked() {
		if err := head.Sign(b.admin); err != nil {
			return nil, err
		}
	}
	e, err = entry(cluster.HeadKey, head)
	r.last = append(r.last, e)
	return r, err
}

// revocations lists what is revoked: hosts, and administrators and feeds. What only the backup says
// of a host needs a signature if hosts demand one.
func (b *backup) revocations() (hosts, others map[cluster.Serial]bool) {
	hosts, others = map[cluster.Serial]bool{}, map[cluster.Serial]bool{}
	for _, s := range b.before.RevokedHosts {
		hosts[s] = true
	}
	for _, s := range b.before.RevokedOthers {
		others[s] = true
	}
	for _, e := range b.entries {
		for _, s := range cluster.RevokedOthers(e) {
			others[s] = true
		}
		if !strings.HasPrefix(e.Key, cluster.RemovedTree+"node/") {
			continue
		}
		record, counts := b.signed(e)
		for _, s := range record.Serials {
			hosts[s] = hosts[s] || counts
		}
	}
	return hosts, others
}
