package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/weirnet/weir/store"
)

// known are the errors of etcd that mean an error of package store.
var known = []struct{ theirs, ours error }{
	{rpctypes.ErrCompacted, store.ErrCompacted},
	{rpctypes.ErrFutureRev, store.ErrBehind},
	{rpctypes.ErrPermissionDenied, store.ErrPermission},
	{rpctypes.ErrUserEmpty, store.ErrPermission},
	{rpctypes.ErrAuthFailed, store.ErrPermission},
	{rpctypes.ErrRequestTooLarge, store.ErrInvalid},
	{rpctypes.ErrTooManyOps, store.ErrInvalid},
}

// translate returns an error of package store for one of etcd. ctx is the caller's context: its own
// error is returned as it is. Everything unknown means that etcd does not do its work now.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, k := range known {
		if errors.Is(err, k.ours) {
			return err
		}
		// The reason that a watch was refused for is text.
		if errors.Is(err, k.theirs) || strings.HasSuffix(err.Error(), k.theirs.Error()) {
			return fmt.Errorf("%w (%w)", k.ours, err)
		}
	}
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("%w: its database is full: %w",
			store.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}
