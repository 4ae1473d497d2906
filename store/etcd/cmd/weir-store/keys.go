package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
)

// keysFile has the list of the keys of administrators that this store host knows: an external etcd
// that was stolen cannot put another one into invitations. init makes it, grow gives it to further
// store hosts.
const keysFile = "keys"

// lock makes the first list of keys, of one administrator, unless an interrupted run has.
func (h home) lock(ctx context.Context, s store.Store, of *identity.Credential) error {
	pinned, err := h.pinnedKeys()
	if err != nil || pinned.Count > 0 {
		return err
	}
	list, err := admin.Keys(ctx, s)
	if err == nil && list.Count == 0 {
		list, _, err = admin.ChangeKeys(ctx, s, admin.Signer{Key: of.Key}, nil, nil)
	}
	if err != nil {
		return err
	}
	if list.Count != 1 || len(list.Keys) != 1 || !list.Has(admin.KeyOf(of.Key)) {
		return fmt.Errorf("the store has keys of administrators already, which this host does "+
			"not know: %s has not the first one alone", cluster.KeysKey)
	}
	return h.pinKeys(list)
}

// pinnedKeys reads the file; the list is zero if there is none.
func (h home) pinnedKeys() (l cluster.KeyList, err error) {
	text, err := os.ReadFile(h.file(keysFile))
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil {
		return l, fmt.Errorf("%s: %w", h.file(keysFile), err)
	}
	return l, nil
}

// pinKeys writes the file, unless it has this list or a later one.
func (h home) pinKeys(l cluster.KeyList) error {
	pinned, err := h.pinnedKeys()
	if err != nil || l.Count <= pinned.Count {
		return err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return atomicfile.Write(h.file(keysFile), append(text, '\n'))
}

// keys returns the digest of the list that a host that is invited demands; zero: none.
func (h home) keys(ctx context.Context, s store.Store) (d cluster.Digest, err error) {
	list, of, err := h.list(ctx, s)
	if err != nil || !list.Locked() {
		return d, err
	}
	return list.Digest(of)
}

// known adds what this store host knows without the store. The store's keys of administrators count
// as far as they follow from that. What is not a list of keys counts as none: an attacker in the
// store must not keep hosts from being removed by that.
func (h home) known(ctx context.Context, s store.Store, by members.Signing) (members.Signing,
	error) {
	var err error
	if by.CA, err = h.caKeys(); err != nil {
		return by, err
	}
	list, _, err := h.list(ctx, s)
	if err != nil && !list.Locked() && !errors.Is(err, cluster.ErrDocument) {
		return by, err
	}
	by.Admins = list.Keys
	by.Bound, err = h.bound(by.CA)
	return by, err
}

// caKeys returns the keys that sign certificates of hosts.
func (h home) caKeys() (keys []cluster.Key, err error) {
	own, err := identity.ReadCredential(h.file(storeFile))
	if err != nil {
		return nil, err
	}
	for _, der := range own.CAs {
		key, err := identity.CAKey(der)
		if err != nil {
			return nil, err
		}
		keys = append(keys, cluster.Key(key))
	}
	return keys, nil
}

// list returns the list of keys that hosts demand, of the cluster with this id. If the store's do
// not follow from those that this host knows, or are none, these are returned with the error.
func (h home) list(ctx context.Context, s store.Store) (l cluster.KeyList, of cluster.Serial,
	err error) {
	known, err := h.pinnedKeys()
	if err != nil {
		return l, of, err
	}
	doc, _, err := document[cluster.AdminKeys](ctx, s, cluster.KeysKey)
	var id cluster.Identity
	if err == nil {
		id, err = readIdentity(ctx, s)
	}
	switch {
	case errors.Is(err, cluster.ErrDocument):
		return known, of, err
	case err != nil:
		return l, of, err
	}
	if l, err = followKeys(known, id.ID, &doc); err != nil {
		return l, id.ID, fmt.Errorf("the store's keys of administrators are not signed by "+
			"those that this host knows (%s): %w", h.file(keysFile), err)
	}
	return l, id.ID, h.pinKeys(l)
}

// followKeys returns the list of keys that a store host believes which knows one. Without a lock it
// takes the newest one that it sees.
func followKeys(known cluster.KeyList, of cluster.Serial, doc *cluster.AdminKeys) (
	cluster.KeyList, error) {
	newest := doc.Newest()
	switch {
	case known.Locked():
		return known.Follow(of, doc)
	case newest.Count < known.Count: // from before the end of the lock
		return known, nil
	}
	return newest, nil
}
