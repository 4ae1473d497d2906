package members

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
)

// one reads one document and its revision; ok is false if it does not exist.
func one[T any, D interface {
	*T
	cluster.Document
}](ctx context.Context, s store.Store, key string) (doc T, revision int64, ok bool, err error) {
	got, err := s.Read(ctx, key, 0)
	if err != nil {
		return doc, 0, false, err
	}
	return read[T, D](key, got)
}

// entry returns an entry with a document.
func entry(key string, d cluster.Document) (store.Entry, error) {
	value, err := cluster.Encode(d)
	return store.Entry{Key: key, Value: value}, err
}

// ErrExists is the error of a store that has a cluster.
var ErrExists = errors.New("the store has a cluster already")

// CreateCluster writes the first documents of a cluster into an empty store: its identity, and the
// first administrator.
func CreateCluster(ctx context.Context, s store.Store, doc cluster.Identity,
	admin identity.Peer) error {
	id, err := entry(cluster.IdentityKey, &doc)
	if err != nil {
		return err
	}
	issued, err := entry(cluster.IssuedKey, &cluster.Issued{
		Certificates: []cluster.IssuedCertificate{{ID: admin.ID.String(),
			Serial: cluster.Serial(admin.Serial)}}})
	if err != nil {
		return err
	}
	members, err := entry(cluster.MembersKey, &cluster.Membership{Count: 1})
	if err != nil {
		return err
	}
	if err := checkEmpty(ctx, s); err != nil {
		return err
	}
	_, err = s.Commit(ctx, store.Txn{Compare: []store.Compare{{Key: cluster.IdentityKey}},
		Put: []store.Entry{id, issued, members}})
	if errors.Is(err, store.ErrConflict) {
		return ErrExists
	}
	return err
}

// checkEmpty returns ErrExists for a store with a cluster, and an error for one with a part of one.
func checkEmpty(ctx context.Context, s store.Store) error {
	for _, name := range []string{cluster.IdentityKey, cluster.Root} {
		there, err := s.Read(ctx, name, 0)
		switch {
		case err != nil:
			return err
		case len(there.Entries) > 0 && name == cluster.IdentityKey:
			return ErrExists
		case len(there.Entries) > 0:
			return fmt.Errorf("the store is not empty: it has %s: %s", there.Entries[0].Key,
				emptyStore)
		}
	}
	return nil
}

// Invitation is the data that an administrator gives to a new host.
type Invitation struct {
	Roles  []string
	Labels []string // keys of labels that the host may give its pods
	Uses   int
	Valid  time.Duration
	Keys   cluster.Digest // of the keys of administrators that the host demands; zero: none
}

// Invite stores a token with the CA's signature, and returns it.
func Invite(ctx context.Context, s store.Store, ca *identity.CA, i Invitation) (identity.Token,
	error) {
	token := identity.NewToken(identity.FingerprintOf(ca.Certificate()))
	token.Keys = i.Keys
	invite := &cluster.Invite{Verifier: cluster.Digest(token.Verifier()), Roles: sorted(i.Roles),
		Labels: sorted(i.Labels), Uses: i.Uses, Seconds: int64(i.Valid / time.Second)}
	if err := invite.Sign(token.Name(), ca.Key()); err != nil {
		return token, err
	}
	e, err := entry(cluster.InviteTree+token.Name(), invite)
	if err != nil {
		return token, err
	}
	_, err = s.Commit(ctx, store.Txn{Compare: []store.Compare{{Key: e.Key}},
		Put: []store.Entry{e}})
	return token, err
}

// ChangeIdentity reads the document of the cluster, lets the caller change it, and writes it.
// Another change in between is not lost.
func ChangeIdentity(ctx context.Context, s store.Store, change func(*cluster.Identity)) error {
	for {
		doc, revision, ok, err := one[cluster.Identity](ctx, s, cluster.IdentityKey)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%s does not exist: run weir cluster init", cluster.IdentityKey)
		}
		change(&doc)
		e, err := entry(cluster.IdentityKey, &doc)
		if err != nil {
			return err
		}
		_, err = s.Commit(ctx, store.Txn{
			Compare: []store.Compare{{Key: cluster.IdentityKey, Revision: revision}},
			Put:     []store.Entry{e}})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}
