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
// it now; otherwise signed is false, and Sign has to follow. Before the list, the removal records
// get one for which the new list has no key.
func ChangeKeys(ctx context.Context, s store.Store, by Signer, add,
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

func (st *state) changeKeys(ctx context.Context, s store.Store, by Signer, add,
	remove []cluster.Key) (l cluster.KeyList, signed bool, err error) {
	before, err := by.keys(st)
	if err == nil {
		err = by.mayLead(before)
	}
	if err != nil {
		return l, false, err
	}
	keys := append(slices.Clone(before.Keys), add...)
	if !before.Locked() {
		keys = append(keys, KeyOf(by.Key))
	}
	for _, k := range remove {
		if !slices.Contains(keys, k) {
			return l, false, fmt.Errorf("%v is not one of the keys", k)
		}
		keys = slices.DeleteFunc(keys, func(other cluster.Key) bool { return other == k })
	}
	if l, err = before.Next(st.identity.ID, keys, by.Key); err != nil {
		return l, false, err
	}
	if slices.Equal(l.Keys, before.Keys) {
		return before, true, nil
	}
	if err := st.signRemovalRecords(ctx, s, by, before, l); err != nil {
		return l, false, err
	}
	st.keys.Add(l)
	t := store.Txn{Compare: append(st.at[:1:1], st.keysAt)}
	err = put(&t, cluster.KeysKey, &st.keys)
	switch h := &st.head; {
	case h.Number.Count == 0, !l.Locked():
		signed = true // there is nothing to sign
	case before.Locked() && h.Verify(before.Keys) == nil && l.Has(KeyOf(by.Key)):
		signed = true
		err = errors.Join(err, h.Sign(by.Key), put(&t, cluster.HeadKey, h))
	default:
		signed = before.Locked() && h.Verify(l.Keys) == nil
	}
	if err != nil {
		return l, false, err
	}
	_, err = s.Commit(ctx, t)
	return l, signed, err
}

// Sign signs the head, which has this number. Rules other than those of known, which the signer's
// own host enforces, are signed with changed only: the store may be stolen. If the store has a
// version or keys that hosts refuse, the number of the known version puts that back.
func Sign(ctx context.Context, s store.Store, n cluster.Number, by Signer,
	known *cluster.Head, changed bool) error {
	st, err := read(ctx, s)
	if err != nil {
		return err
	}
	l, forged := by.keys(st)
	if err := by.mayLead(l); err != nil {
		return err
	}
	if known != nil && known.Number == n && !changed && by.Knows.Admins.Locked() &&
		(forged != nil || by.mayFollow(st) != nil) {
		return st.putBack(ctx, s, by, *known, l, forged != nil)
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
	return write(ctx, s, h, st.at[:1], nil, by.Key)
}

// putBack writes what the signer's own host enforces, signed, and the keys that it knows.
func (st *state) putBack(ctx context.Context, s store.Store, by Signer, h cluster.Head,
	l cluster.KeyList, keys bool) error {
	if err := h.Sign(by.Key); err != nil {
		return err
	}
	t := store.Txn{Compare: append(st.at[:1:1], st.keysAt)}
	err := put(&t, cluster.HeadKey, &h)
	if keys {
		err = errors.Join(err, put(&t, cluster.KeysKey,
			&cluster.AdminKeys{Lists: []cluster.KeyList{l}}))
	}
	if err != nil {
		return err
	}
	_, err = s.Commit(ctx, t)
	return err
}

// put has a transaction write a document.
func put(t *store.Txn, key string, d cluster.Document) error {
	value, err := cluster.Encode(d)
	t.Put = append(t.Put, store.Entry{Key: key, Value: value})
	return err
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
