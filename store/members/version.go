package members

import (
	"context"
	"fmt"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// checkHead returns an error if the rules of a host's scopes clash in the version that the store
// has, and the comparison by which that stays true. got is what was read of HeadKey.
func checkHead(ctx context.Context, s store.Store, got store.Snapshot,
	host cluster.Host) (store.Compare, error) {
	head, revision, ok, err := read[cluster.Head](cluster.HeadKey, got)
	at := store.Compare{Key: cluster.HeadKey, Revision: revision}
	if err != nil || !ok {
		return at, err
	}
	if err := checkScopes(ctx, s, head.Scopes, host); err != nil || head.Trial == nil {
		return at, err
	}
	return at, checkScopes(ctx, s, head.Trial.Revert.Scopes, host)
}

func checkScopes(ctx context.Context, s store.Store, scopes map[cluster.Scope]cluster.Digest,
	host cluster.Host) error {
	version := cluster.Version{}
	for _, scope := range host.Scopes() {
		digest, ok := scopes[scope]
		if !ok {
			continue
		}
		parts, err := s.Read(ctx, fmt.Sprintf("%s%v/", cluster.TextTree, digest), 0)
		if err != nil {
			return err
		}
		text, err := cluster.DecodeText(digest, parts.Entries)
		if err != nil {
			return err
		}
		if version[scope], err = rule.ParseFile(string(scope), text, nil); err != nil {
			return fmt.Errorf("the rules of scope %s: %w", scope, err)
		}
	}
	if err := version.Check([]cluster.Host{host}); err != nil {
		return fmt.Errorf("host %s could not have these roles: %w", host.Name, err)
	}
	return nil
}
