package members

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// Epoch returns the epoch that hosts are in, as a store host knows it that knew another one before,
// 0 for none: that of the identity or, if hosts demand signatures, of the signed version. A thief
// of the store may have written the last one that there is.
func Epoch(known uint64, doc *cluster.Identity, head *cluster.Head, admins []cluster.Key) (
	uint64, error) {
	epoch := doc.Epoch
	if len(admins) > 0 {
		if head == nil || head.Verify(admins) != nil {
			return known, nil
		}
		epoch = min(epoch, head.Number.Epoch)
	}
	if err := cluster.CheckEpoch(max(known, 1), epoch); err != nil {
		return known, err
	}
	return max(known, epoch), nil
}

// newEpoch divides the entries of a backup into those that stay as they are, and the identity and
// the head, which belong to the new epoch.
func newEpoch(entries []store.Entry, known uint64, admin ed25519.PrivateKey) (rest,
	last []store.Entry, epoch uint64, err error) {
	var keys cluster.AdminKeys
	var head *cluster.Head
	var doc *cluster.Identity
	for _, e := range entries {
		switch e.Key {
		default:
			rest = append(rest, e)
		case cluster.KeysKey:
			rest = append(rest, e)
			keys, err = cluster.Decode[cluster.AdminKeys](e.Value)
		case cluster.HeadKey:
			head, err = decoded[cluster.Head](e)
		case cluster.IdentityKey:
			doc, err = decoded[cluster.Identity](e)
		}
		if err != nil {
			return nil, nil, 0, fmt.Errorf("%s: %w", e.Key, err)
		}
	}
	if doc == nil {
		return nil, nil, 0, fmt.Errorf("the backup has no %s", cluster.IdentityKey)
	}
	had, err := Epoch(known, doc, head, keys.Newest().Keys)
	if err != nil && known == 0 {
		return nil, nil, 0, fmt.Errorf("the backup is of an epoch that cannot be: %w", err)
	}
	if known == 0 && cluster.CheckEpoch(1, doc.Epoch) == nil { // hosts may be in it
		had = max(had, doc.Epoch)
	}
	epoch = max(had, 1) + 1
	doc.Epoch = epoch
	e, err := entry(cluster.IdentityKey, doc)
	if last = append(last, e); err != nil || head == nil {
		return rest, last, epoch, err
	}
	if head.Trial != nil {
		head = &head.Trial.Revert // a version on trial is not begun with
	}
	head = &cluster.Head{Scopes: head.Scopes, By: head.By,
		Number: cluster.Number{Epoch: epoch, Count: 1}}
	if keys.Newest().Locked() {
		if admin == nil {
			return nil, nil, 0, errors.New("hosts demand that an administrator signs the rules: " +
				"restore with the key of one")
		}
		if err := head.Sign(admin); err != nil {
			return nil, nil, 0, err
		}
	}
	e, err = entry(cluster.HeadKey, head)
	return rest, append(last, e), epoch, err
}

// decoded returns the document of an entry.
func decoded[T any, D interface {
	*T
	cluster.Document
}](e store.Entry) (*T, error) {
	doc, err := cluster.Decode[T, D](e.Value)
	return &doc, err
}
