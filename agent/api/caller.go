package api

import "context"

// callerKey is that of the user who asks, in the context of a request.
type callerKey struct{}

// WithCaller is the context of the requests of a user.
func WithCaller(ctx context.Context, uid int) context.Context {
	return context.WithValue(ctx, callerKey{}, uid)
}

// Caller is the id of the user who sent the request, as reported by the kernel, for the log; -1 if
// unknown.
func Caller(ctx context.Context) int {
	if uid, ok := ctx.Value(callerKey{}).(int); ok {
		return uid
	}
	return -1
}
