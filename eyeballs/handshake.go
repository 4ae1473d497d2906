package eyeballs

import (
	"context"
	"crypto/tls"
	"net"
)

func (d *Dialer) tlsConfig(host string) *tls.Config {
	c := d.TLS
	if c.ServerName == "" {
		c = c.Clone()
		c.ServerName = host
	}
	return c
}

// handshake makes conn a TLS connection. It closes conn if the handshake fails.
func handshake(ctx context.Context, conn net.Conn, c *tls.Config) (net.Conn, error) {
	t := tls.Client(conn, c)
	if err := t.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return t, nil
}
