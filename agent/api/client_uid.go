package api

import "context"

// clientUIDKey is that of the user who asks, in the context of a request.
type clientUIDKey struct{}

// WithClientUID is the context of the requests of a user.
func WithClientUID(ctx context.Context, uid int) context.Context {
	return context.WithValue(ctx, clientUIDKey{}, uid)
}

// ClientUID is the id of the user who sent the request, as reported by the kernel, for the log; -1
// if unknown.
func ClientUID(ctx context.Context) int {
	if uid, ok := ctx.Value(clientUIDKey{}).(int); ok {
		return uid
	}
	return -1
}
