package admin

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// KeyOf returns the public key of an administrator.
func KeyOf(k ed25519.PrivateKey) cluster.Key {
	return cluster.Key(k.Public().(ed25519.PublicKey))
}

// errUnlisted refuses what hosts would not accept.
type errUnlisted struct{ key cluster.Key }

func (e errUnlisted) Error() string {
	return fmt.Sprintf("hosts demand the signature of another administrator: %v is not one of "+
		"their keys", e.key)
}

// Hint returns who can change that.
func (errUnlisted) Hint() string {
	return "weir cluster keys lists them; one of them can add yours"
}

// mayLead returns an error for a key that hosts do not accept.
func (st *state) mayLead(key ed25519.PrivateKey) error {
	l := st.keys.Newest()
	if !l.Locked() {
		return nil
	}
	if len(key) != ed25519.PrivateKeySize {
		return errUnlisted{}
	}
	if k := KeyOf(key); !l.Has(k) {
		return errUnlisted{k}
	}
	return nil
}

// Keys returns the keys of administrators, of which one has to sign each version of the rules.
func Keys(ctx context.Context, s store.Store) (cluster.KeyList, error) {
	st, err := read(ctx, s)
	if err != nil {
		return cluster.KeyList{}, err
	}
	return st.keys.Newest(), nil
}

// ChangeKeys adds and removes keys of administrators, with the signature of one that is listed. The
// first list has the key of who makes it. The head gets a signature of the same key if hosts accept
// it now; otherwise signed is false, and Sign has to follow.
func ChangeKeys(ctx context.Context, s store.Store, by ed25519.PrivateKey, add,
	remove []cluster.Key) (l cluster.KeyList, signed bool, err error) {
	for {
		st, err := read(ctx, s)
		if err != nil {
			return l, false, err
		}
		l, signed, err = st.changeKeys(ctx, s, by, add, remove)
		if !errors.Is(err, store.ErrConflict) {
			return l, signed, err
		}
	}
}

func (st *state) changeKeys(ctx context.Context, s store.Store, by ed25519.PrivateKey, add,
	remove []cluster.Key) (l cluster.KeyList, signed bool, err error) {
	before := st.keys.Newest()
	if err := st.mayLead(by); err != nil {
		return l, false, err
	}
	keys := append(slices.Clone(before.Keys), add...)
	if !before.Locked() {
		keys = append(keys, KeyOf(by))
	}
	for _, k := range remove {
		if !slices.Contains(keys, k) {
			return l, false, fmt.Errorf("%v is not one of the keys", k)
		}
		keys = slices.DeleteFunc(keys, func(other cluster.Key) bool { return other == k })
	}
	if l, err = before.Next(st.identity.ID, keys, by); err != nil {
		return l, false, err
	}
	if slices.Equal(l.Keys, before.Keys) {
		return before, true, nil
	}
	st.keys.Add(l)
	t := store.Txn{Compare: append(st.at[:1:1], st.keysAt)}
	put := func(key string, d cluster.Document) error {
		value, err := cluster.Encode(d)
		t.Put = append(t.Put, store.Entry{Key: key, Value: value})
		return err
	}
	err = put(cluster.KeysKey, &st.keys)
	switch h := &st.head; {
	case h.Number.Count == 0, !l.Locked():
		signed = true // there is nothing to sign
	case before.Locked() && h.Verify(before.Keys) == nil && l.Has(KeyOf(by)):
		signed = true
		err = errors.Join(err, h.Sign(by), put(cluster.HeadKey, h))
	default:
		signed = before.Locked() && h.Verify(l.Keys) == nil
	}
	if err != nil {
		return l, false, err
	}
	_, err = s.Commit(ctx, t)
	return l, signed, err
}

// errChanged refuses to sign what the signer may not know.
type errChanged struct{ scopes []cluster.Scope }

func (e errChanged) Error() string {
	return fmt.Sprintf("it is not what this host enforces: other rules of %v", e.scopes)
}

// Hint returns what to do.
func (errChanged) Hint() string {
	return "read them: weir fw list --on SCOPE; then weir cluster sign --changed"
}

// Sign signs the head, which has this number. Rules other than those of known, which the signer's
// own host enforces, are signed with changed only: the store may be stolen.
func Sign(ctx context.Context, s store.Store, n cluster.Number, by ed25519.PrivateKey,
	known *cluster.Head, changed bool) error {
	st, err := read(ctx, s)
	if err != nil {
		return err
	}
	if err := st.mayLead(by); err != nil {
		return err
	}
	h := &st.head
	if h.Number != n || n.Count == 0 {
		return fmt.Errorf("the version is %v, not %v", h.Number, n)
	}
	if known == nil {
		known = new(cluster.Head)
	}
	other := differing(h.Scopes, known.Scopes)
	if h.Trial != nil {
		other = append(other, differing(h.Trial.Revert.Scopes, known.Scopes)...)
	}
	slices.Sort(other)
	if other = slices.Compact(other); len(other) > 0 && !changed {
		return errChanged{other}
	}
	return write(ctx, s, h, st.at[:1], nil, by)
}

// differing returns the scopes whose texts differ.
func differing(a, b map[cluster.Scope]cluster.Digest) (all []cluster.Scope) {
	for scope := range maps.Keys(a) {
		if a[scope] != b[scope] {
			all = append(all, scope)
		}
	}
	for scope := range b {
		if _, there := a[scope]; !there {
			all = append(all, scope)
		}
	}
	return all
}
