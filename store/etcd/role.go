package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirnet/weir/store"
)

// SetRole makes a role that permits exactly what the grants do. A role of that name is replaced: a
// user loses it meanwhile, and its requests fail.
//
// etcd checks a watch when it begins and not again (v3.7): removing a role does not end watches.
// weir-store ends the connections of a removed host itself.
func SetRole(ctx context.Context, client *clientv3.Client, role string,
	grants []store.Grant) error {
	if _, err := client.RoleDelete(ctx, role); err != nil &&
		!errors.Is(err, rpctypes.ErrRoleNotFound) {
		return translate(ctx, err)
	}
	if _, err := client.RoleAdd(ctx, role); err != nil {
		return translate(ctx, err)
	}
	for _, g := range grants {
		permission := clientv3.PermissionType(clientv3.PermRead)
		if g.Write {
			permission = clientv3.PermissionType(clientv3.PermReadWrite)
		}
		end := ""
		if len(below(g.Name)) > 0 {
			end = clientv3.GetPrefixRangeEnd(g.Name)
		}
		if _, err := client.RoleGrantPermission(ctx, role, g.Name, end, permission); err != nil {
			return translate(ctx, err)
		}
	}
	return nil
}
