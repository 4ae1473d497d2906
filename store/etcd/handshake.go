package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// handshakes are the credentials of TLS connections, and note why the last handshake failed. What
// etcd's client returns says only that the time for the call was over.
type handshakes struct {
	credentials.TransportCredentials
	failed *atomic.Pointer[error] // nil in it: the last one did not
}

func newHandshakes(c *tls.Config) *handshakes {
	return &handshakes{credentials.NewTLS(c), new(atomic.Pointer[error])}
}

// ClientHandshake implements credentials.TransportCredentials.
func (h *handshakes) ClientHandshake(ctx context.Context, authority string,
	conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if err == nil {
		h.failed.Store(nil)
	} else { // at once: a call that ends now has the reason of the try before, or this one
		h.failed.Store(&err)
	}
	return secured, info, err
}

// Clone implements credentials.TransportCredentials.
func (h *handshakes) Clone() credentials.TransportCredentials {
	return &handshakes{h.TransportCredentials.Clone(), h.failed}
}

// explain adds to an error of a call why there is no connection, if that is known.
func (h *handshakes) explain(err error) error {
	if h == nil || err == nil {
		return err
	}
	reason := h.failed.Load()
	if reason == nil {
		return err
	}
	var bad x509.CertificateInvalidError
	if errors.As(*reason, &bad) && bad.Reason == x509.Expired {
		return fmt.Errorf("%w: %w; if the clock of this host is wrong, set it (timedatectl); "+
			"etcd is tried again", err, *reason)
	}
	return fmt.Errorf("%w: %w", err, *reason)
}
