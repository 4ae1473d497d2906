package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
)

// keysFile has the list of the keys of administrators that this store host knows: an external etcd
// that was stolen cannot put another one into invitations.
const keysFile = "keys"

// lock makes the first list of keys, unless there is one.
func lock(ctx context.Context, s store.Store, of *identity.Credential) error {
	list, err := admin.Keys(ctx, s)
	if err != nil || list.Count > 0 {
		return err
	}
	_, _, err = admin.ChangeKeys(ctx, s, of.Key, nil, nil)
	return err
}

// keys returns the digest of the list that a host that is invited demands; zero: none.
func (h home) keys(ctx context.Context, s store.Store) (d cluster.Digest, err error) {
	got, err := s.Read(ctx, cluster.Watched, 0)
	if err != nil {
		return d, err
	}
	var doc cluster.AdminKeys
	var id cluster.Identity
	for _, e := range got.Entries {
		switch e.Key {
		case cluster.KeysKey:
			doc, err = cluster.Decode[cluster.AdminKeys](e.Value)
		case cluster.IdentityKey:
			id, err = cluster.Decode[cluster.Identity](e.Value)
		}
		if err != nil {
			return d, fmt.Errorf("%s: %w", e.Key, err)
		}
	}
	var known cluster.KeyList
	text, err := os.ReadFile(h.file(keysFile))
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d, fmt.Errorf("%s: %w", h.file(keysFile), err)
	}
	list := doc.Newest()
	if known.Count > 0 {
		if list, err = known.Follow(id.ID, &doc); err != nil {
			return d, fmt.Errorf("the store's keys of administrators are not signed by those "+
				"that this host knows (%s): %w", h.file(keysFile), err)
		}
	}
	err = nil
	if list.Count != known.Count {
		if text, err = json.Marshal(list); err == nil {
			err = write(h.file(keysFile), append(text, '\n'))
		}
	}
	if err != nil || !list.Locked() {
		return d, err
	}
	return list.Digest(id.ID)
}
