package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/wire"
)

// light is a host that reads frames and does not unpack them.
type light struct {
	fleet *fleet
	conn  *tls.Conn
	last  int64
}

// dialLight connects and follows from what another host has.
func (f *fleet) dialLight(ctx context.Context, c client.Config, from *host) (*light, error) {
	raw, err := c.Dial(ctx, "tcp", c.Stores()[0])
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, c.TLS)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if _, err := conn.Write(wire.Hello{}.Encode()); err != nil {
		return nil, err
	}
	t, body, err := wire.ReadFrame(conn, wire.MaxFrame)
	if err != nil || t != wire.TypeWelcome {
		return nil, fmt.Errorf("frame %d: %q: %w", t, body, err)
	}
	at := from.copy.Stored()
	m := wire.Follow{Revision: at.Revision, Sum: from.sum}
	_, err = conn.Write(m.Encode())
	return &light{f, conn, at.Revision}, err
}

// run notes the revision of each batch.
func (l *light) run() error {
	from := bufio.NewReader(l.conn)
	for {
		t, body, err := wire.ReadFrame(from, wire.MaxFrame)
		if err != nil {
			return err
		}
		if t != wire.TypeBatch {
			continue
		}
		revision, _ := binary.Uvarint(body)
		l.fleet.arrived(l.last, int64(revision), time.Now())
		l.last = int64(revision)
	}
}
