package admin

import (
	"context"
	"errors"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// documents are what an administrator reads. What hosts write is not among it: those that were
// stolen can fill hundreds of MiB with pods, which would keep the administrator from every command.
var documents = []string{cluster.IdentityKey, cluster.HeadKey, cluster.KeysKey, cluster.MembersKey,
	cluster.NodeTree, cluster.RemovedTree, cluster.TableTree}

// maxReads is how often an administrator reads at most. A store drops old revisions once in some
// minutes: one that drops each at once is broken, or lies.
const maxReads = 5

// readDocuments reads them at one revision.
func readDocuments(ctx context.Context, s store.Store) (all []store.Entry, err error) {
	for range maxReads {
		all, err = readAt(ctx, s)
		if !errors.Is(err, store.ErrCompacted) { // the revision was dropped meanwhile
			return all, err
		}
	}
	return nil, err
}

func readAt(ctx context.Context, s store.Store) (all []store.Entry, err error) {
	revision := int64(0)
	for _, name := range documents {
		got, err := s.Read(ctx, name, revision)
		if err != nil {
			return nil, err
		}
		revision, all = got.Revision, append(all, got.Entries...)
	}
	return all, nil
}
